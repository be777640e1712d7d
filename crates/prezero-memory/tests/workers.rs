//! The threads that populate: who makes them, where they run, and that they are gone afterwards.

mod requests;

use std::io;
use std::sync::Mutex;
use std::thread::Builder;

use prezero_memory::{
    Class, Control, IdSet, PopulateError, Request, ThreadBody, WorkerPlan, Workers, plan,
};
use prezero_testkit::{MachineLock, thread_names};
use requests::{cpus, eager, planned, populated, reserved};

fn worker_names() -> Vec<String> {
    let mut names = thread_names();
    names.retain(|name| name.starts_with("prezero-"));
    names.sort();
    names
}

#[test]
fn worker_threads_are_gone_when_their_owner_is() {
    let _lock = MachineLock::acquire();
    let request = Request {
        threads: Some(3),
        ..eager(&["size=16M,hugepages=off"])
    };
    let plan = planned(&request);
    let workers = Workers::start(plan.workers()).expect("a few threads");
    assert_eq!(workers.count(), 3);
    // A thread names itself, after it was started.
    let names = ["prezero-n0-0", "prezero-n0-1", "prezero-n0-2"];
    let (ram, _) = reserved(&plan)
        .populate(&workers, &Control::default())
        .expect("reserved memory");
    assert_eq!(worker_names(), names);
    drop(workers);
    assert_eq!(worker_names(), [""; 0]);
    drop(ram);
}

#[test]
fn worker_threads_are_gone_after_an_error() {
    let _lock = MachineLock::acquire();
    let planned_here = planned(&eager(&["size=16M,hugepages=off"]));
    let (host, second) = requests::host_with_a_second_node(0);
    let other = format!("size=16M,hugepages=off,host_numa_node={second}");
    let workers_of_other = plan(&host, &eager(&[&other])).expect("the host claims the node");
    let workers = Workers::start(workers_of_other.workers()).expect("a few threads");
    let failed = reserved(&planned_here)
        .populate(&workers, &Control::default())
        .expect_err("nobody works there");
    assert!(
        matches!(failed.error, PopulateError::NoWorkers(0)),
        "{failed}"
    );
    assert_eq!(failed.error.class(), Class::Usage);
    drop(workers);
    assert_eq!(worker_names(), [""; 0]);

    let started = Mutex::new(0);
    let spawner = |builder: Builder, body: ThreadBody| {
        let mut started = started.lock().expect("no spawner panics");
        *started += 1;
        match *started {
            3 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            _ => builder.spawn(body),
        }
    };
    let request = Request {
        threads: Some(4),
        ..eager(&["size=16M,hugepages=off"])
    };
    Workers::start_with(planned(&request).workers(), &spawner)
        .expect_err("the third thread is refused");
    assert_eq!(worker_names(), [""; 0]);
}

#[test]
fn every_thread_is_made_by_the_callers_spawner() {
    let _lock = MachineLock::acquire();
    let request = Request {
        threads: Some(3),
        ..eager(&["size=16M,hugepages=off"])
    };
    let plan = planned(&request);
    let made = Mutex::new(Vec::new());
    let spawner = |builder: Builder, body: ThreadBody| {
        let thread = builder.spawn(body)?;
        let name = thread.thread().name().map(str::to_owned);
        made.lock()
            .expect("no spawner panics")
            .push(name.expect("threads have names"));
        Ok(thread)
    };
    let workers = Workers::start_with(plan.workers(), &spawner).expect("a few threads");
    let (ram, report) = reserved(&plan)
        .populate(&workers, &Control::default())
        .expect("reserved memory");
    assert_eq!(*made.lock().expect("no spawner panics"), worker_names());
    assert_eq!(report.workers.len(), 3);
    drop((workers, ram));
}

#[test]
fn the_callers_cpu_list_is_where_the_work_is_done() {
    let _lock = MachineLock::acquire();
    for cpu in cpus().into_iter().take(4) {
        let request = Request {
            threads: Some(2),
            cpus: Some(IdSet::from_iter([cpu])),
            ..eager(&["size=32M,hugepages=off"])
        };
        let (_, report) = populated(&planned(&request));
        assert_eq!(report.workers.len(), 2);
        for worker in &report.workers {
            assert_eq!((worker.cpu, worker.pinned), (Some(cpu), true));
        }
    }
}

/// A CPU that went offline after the plan was made is one that no thread can be pinned to.
#[test]
fn a_cpu_that_is_not_there_costs_the_pin_and_not_the_memory() {
    let _lock = MachineLock::acquire();
    let plan = planned(&eager(&["size=32M,hugepages=off"]));
    let here = cpus()[0];
    let workers = [
        WorkerPlan::new(0, Some(here)),
        WorkerPlan::new(0, Some(4000)),
        WorkerPlan::new(0, Some(u32::MAX)),
    ];
    let workers = Workers::start(&workers).expect("three threads");
    let (ram, report) = reserved(&plan)
        .populate(&workers, &Control::default())
        .expect("every thread works");
    let pinned: Vec<bool> = report.workers.iter().map(|worker| worker.pinned).collect();
    assert_eq!(pinned, [true, false, false]);
    assert_eq!(report.bytes, 32 << 20);
    for worker in &report.workers {
        assert!(
            worker.cpu.is_some_and(|cpu| cpus().contains(&cpu)),
            "{worker:?}"
        );
    }
    drop((workers, ram));
}
