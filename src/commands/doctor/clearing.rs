//! How this CPU clears memory.

use std::cell::OnceCell;

use prezero_clear::{Method, Stores};
use prezero_host::Host;
use prezero_memory::{Cancel, Class, Control};

use crate::failure::Failure;
use crate::measure::clear::calibration;
use crate::output::{self, progress::Bars};
use crate::report::calibration::CalibrationFacts;
use crate::report::doctor::Finding;
use crate::stop;

/// Which uncached stores there are. What they are worth takes memory and time to find out.
pub(super) fn check() -> Finding {
    let uncached = Method::available().filter(|method| method.stores() == Stores::Uncached);
    let names: Vec<&str> = uncached.map(Method::name).collect();
    let message = match names.is_empty() {
        true => "This CPU has no uncached stores that prezero knows: cached ones clear".to_owned(),
        false => format!(
            "Uncached stores of this CPU: {} (--calibrate measures them)",
            names.join(", ")
        ),
    };
    Finding::ok("clearing", message)
}

/// Measures every method on up to 1 GiB.
pub(super) fn calibrate(host: &Host) -> Result<CalibrationFacts, Failure> {
    let cancel = stop::on_signals().map_err(|error| Failure::new(Class::Internal, &error, None))?;
    measure(host, &cancel)
}

fn measure(host: &Host, cancel: &Cancel) -> Result<CalibrationFacts, Failure> {
    let control = Control {
        cancel: Some(cancel),
        ..Control::default()
    };
    // Its size is known once there is memory.
    let bars = OnceCell::new();
    let measured = calibration::calibrate(host, control, &|done, total| {
        let bars = bars.get_or_init(|| Bars::new("calibrate", &[(None, total)]));
        bars.set(0, done);
    });
    if let Some(bars) = bars.get() {
        bars.finish();
    }
    let facts = CalibrationFacts::from(&measured?);
    for warning in &facts.warnings {
        output::warn(warning);
    }
    Ok(facts)
}
