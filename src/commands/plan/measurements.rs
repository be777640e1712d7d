//! `--from`: a saved document of `prezero bench vm`, to predict from.

use std::path::{Path, PathBuf};

use prezero_host::Host;
use prezero_memory::{ByteSize, Class, Hugepages, Request};
use serde::Deserialize;

use crate::commands::saved;
use crate::failure::Failure;
use crate::printable::printable;
use crate::report::estimate::{EstimateFacts, MeasuredRow};

const SCHEMA: &str = "prezero/bench-vm/1";

/// How a document is made. What the user named may be something else that is needed.
const MAKE: &str = "sudo prezero bench vm --memory 1G,4G --json >vm.json && prezero plan --memory 1550G --from vm.json";

#[derive(Debug, Deserialize)]
struct Named {
    schema: String,
}

/// What was measured, and where: the part of the document that is read.
#[derive(Debug, Deserialize)]
struct Document {
    host: Option<Machine>,
    rows: Vec<MeasuredRow>,
}

#[derive(Debug, Deserialize)]
struct Machine {
    kernel: String,
    cpu: String,
}

/// The measurements of a file.
#[derive(Debug)]
pub(super) struct Measurements {
    path: PathBuf,
    document: Document,
}

impl Measurements {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |why: String| Failure {
            class: Class::Usage,
            message: format!("{} cannot be predicted from: {why}", path.display()),
            fix: Some(MAKE.to_owned()),
        };
        let text = saved::read(path, MAKE)?;
        let unlike = |error: serde_json::Error| refused(printable(&error.to_string()));
        // Another document has other rows.
        let named: Named = serde_json::from_slice(&text).map_err(unlike)?;
        if named.schema != SCHEMA {
            return Err(refused(format!(
                "its schema is {}, not {SCHEMA}",
                printable(&named.schema)
            )));
        }
        let mut document: Document = serde_json::from_slice(&text).map_err(unlike)?;
        for row in &mut document.rows {
            row.way = shortened(&row.way);
            row.peer = row.peer.as_deref().map(shortened);
        }
        Ok(Self {
            path: path.to_owned(),
            document,
        })
    }

    /// What differs between the host that was measured and this one, where that makes another machine.
    pub(super) fn of_another_machine(&self, host: &Host) -> Option<String> {
        let path = self.path.display();
        let Some(measured) = &self.document.host else {
            return Some(format!("{path} does not say which machine it is of"));
        };
        let here = (&host.cpu.model, &host.kernel.release);
        let there = (&measured.cpu, &measured.kernel);
        (here != there).then(|| {
            format!(
                "{path} was measured on another machine ({}, Linux {}) than is planned for ({}, Linux {})",
                printable(there.0),
                printable(there.1),
                here.0,
                here.1
            )
        })
    }

    /// For the size and the pages of a request, if all of it is on pages that were measured.
    pub(super) fn predict(&self, request: &Request, host: &Host) -> Result<EstimateFacts, Failure> {
        let mut pages = Vec::new();
        for zone in &request.zones {
            let page = zone.hugepage_size.or(host.default_hugepage_size);
            match page.filter(|_| zone.hugepages != Hugepages::Off) {
                Some(page) => pages.push(page.bytes()),
                None => return Err(unlike("ordinary memory".to_owned())),
            }
        }
        pages.sort_unstable();
        pages.dedup();
        let [page] = pages[..] else {
            return Err(unlike("pages of several sizes".to_owned()));
        };
        let mut measured = self.document.rows.iter();
        if !measured.any(|row| row.page_size == page) {
            return Err(unlike(format!("pages of {}", ByteSize(page))));
        }
        let zones = request.zones.iter();
        let bytes = zones.fold(0_u64, |sum, zone| sum.saturating_add(zone.bytes));
        EstimateFacts::new(&self.document.rows, page, bytes)
    }
}

/// A document may hold anything.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 40;
    printable(name).chars().take(LONGEST).collect()
}

fn unlike(memory: String) -> Failure {
    Failure {
        class: Class::Usage,
        message: format!("Nothing can be predicted of {memory}: it was not measured"),
        fix: Some("hugepages=on,hugepage_size=SIZE as measured, or leave --from out".to_owned()),
    }
}
