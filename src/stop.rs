//! SIGINT and SIGTERM: the first asks the run to stop and unwind, the second ends the process.

use std::io;
use std::sync::Arc;

use prezero_memory::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A cancel flag that SIGINT and SIGTERM set.
pub(crate) fn on_signals() -> io::Result<Cancel> {
    let cancel = Cancel::new();
    for signal in [SIGINT, SIGTERM] {
        // Registered first, so that it acts only if the flag was set by an earlier signal.
        flag::register_conditional_default(signal, Arc::clone(&cancel.flag()))?;
        flag::register(signal, cancel.flag())?;
    }
    Ok(cancel)
}
