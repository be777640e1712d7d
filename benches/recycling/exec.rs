//! Stock QEMU, from exec to the greeting on its monitor: at its best with preallocation on fresh pages, and started by
//! `prezero exec` on a segment, with prezero's own time.

use prezero_memory::PageSize;
use serde_json::{Value, json};

use crate::Setup;
use crate::figures::{median, ratio};
use crate::ground::Ground;
use crate::peers::{Result, qemu};

const WAYS: [&str; 3] = ["prealloc", "exec, clean", "exec, dirty"];

pub(crate) fn measure(setup: &Setup) -> Result<Option<Value>> {
    if setup.machine.qemu.is_none() {
        println!("exec: {} is not installed\n", qemu::PROGRAM);
        return Ok(None);
    }
    let size = setup.size;
    let Some(ground) = Ground::take(PageSize::HUGE_2M, size) else {
        return Ok(None);
    };
    let start = |command| qemu::until_greeting(command).map(|start| start.seconds);
    let best = qemu::Prealloc::Pinned(setup.machine.cpus);
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for round in setup.rounds() {
        setup.stop.check()?;
        let fresh = start(qemu::preallocated(size, best))?;
        let pool = ground.pool(size, size)?;
        let clean = start(qemu::on_segment(pool.path(), size))?;
        ground.stain(&pool)?;
        let dirty = start(qemu::on_segment(pool.path(), size))?;
        pool.destroy()?;
        if round > 0 {
            let of = seconds.iter_mut().zip([fresh, clean, dirty]);
            of.for_each(|(of, seconds)| of.push(seconds));
        }
        setup.tell("exec", round);
    }
    let (rounds, mib, cpus) = (setup.rounds, size >> 20, setup.machine.cpus);
    println!("QEMU with {mib} MiB to its greeting, medians of {rounds}, ms");
    println!("way             ms  to prealloc by {cpus} pinned threads");
    for (way, of) in WAYS.iter().zip(&seconds) {
        let (ms, ratio) = (
            median(of.iter().copied()) * 1e3,
            ratio_of_medians(of, &seconds[0]),
        );
        println!("{way:11} {ms:>8.1} {ratio:>10.4}");
    }
    println!("(0.10 at most is the aim for a clean segment)\n");
    let ways = WAYS.iter().zip(&seconds).map(|(way, of)| {
        let (ratio, by_round) = (ratio_of_medians(of, &seconds[0]), ratio(of, &seconds[0]));
        json!({ "way": way, "seconds": of, "to_prealloc": ratio, "to_prealloc_by_round": by_round })
    });
    Ok(Some(json!({
        "bytes": size,
        "prealloc_threads": cpus,
        "ways": ways.collect::<Vec<_>>(),
    })))
}

fn ratio_of_medians(values: &[f64], bases: &[f64]) -> f64 {
    median(values.iter().copied()) / median(bases.iter().copied())
}
