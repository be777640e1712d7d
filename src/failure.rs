//! Errors as the command reports them: a class with its exit code, the cause chain, and a fix.

use std::error::Error;
use std::io::{self, ErrorKind};

use prezero_memory::pool::PoolError;
use prezero_memory::{
    Class, ClearError, GrowError, Method, MethodError, PlacementError, PlanError, PopulateError,
    RegisterError, ReserveError, SpecError, StartError,
};
use prezero_vmm::{BootError, GuestError, KvmError, SlotError};

/// The exit code of a class of failures.
pub(crate) fn exit_code(class: Class) -> u8 {
    match class {
        Class::Usage => 2,
        Class::Shortage => 3,
        Class::Host => 4,
        Class::Guest => 5,
        Class::Stopped => 6,
        _ => 1,
    }
}

/// Whose fault it is that a file which the user named cannot be opened.
pub(crate) fn class_of_file(error: &io::Error) -> Class {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Class::Host,
        ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory => Class::Usage,
        _ => Class::Internal,
    }
}

/// What raises the number of files that a process may have open, for the shell's children.
pub(crate) const MORE_FILES: &str = "ulimit -n 1024";

/// The word for it in JSON.
pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Usage => "usage",
        Class::Shortage => "shortage",
        Class::Host => "host",
        Class::Guest => "guest",
        Class::Stopped => "stopped",
        _ => "internal",
    }
}

/// The class with this name in JSON.
pub(crate) fn class_named(name: &str) -> Class {
    let classes = [
        Class::Usage,
        Class::Shortage,
        Class::Host,
        Class::Guest,
        Class::Stopped,
    ];
    let mut named = classes.into_iter();
    named
        .find(|class| class_name(*class) == name)
        .unwrap_or(Class::Internal)
}

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    /// One sentence and the causes behind it, joined by colons.
    pub(crate) message: String,
    pub(crate) fix: Option<String>,
}

impl Failure {
    pub(crate) fn new(class: Class, error: &dyn Error, fix: Option<String>) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            message.push_str(": ");
            message.push_str(&source.to_string());
            cause = source.source();
        }
        Self {
            class,
            message,
            fix,
        }
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::new(Class::Usage, &error, error.fix())
    }
}

macro_rules! classed {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.class(), &error, error.fix())
            }
        }
    )*};
}

classed!(
    GrowError,
    PlanError,
    ReserveError,
    StartError,
    PopulateError,
    ClearError,
    PlacementError,
    KvmError,
    BootError,
    GuestError,
    PoolError
);

impl From<MethodError> for Failure {
    fn from(error: MethodError) -> Self {
        let class = match error {
            MethodError::Unavailable { .. } => Class::Host,
            _ => Class::Usage,
        };
        let usable: Vec<&str> = Method::available().map(Method::name).collect();
        let fix = format!("--method {}", usable.join(" | "));
        Self::new(class, &error, Some(fix))
    }
}

impl From<RegisterError<SlotError>> for Failure {
    fn from(error: RegisterError<SlotError>) -> Self {
        Self::new(error.source.class(), &error, error.source.fix())
    }
}
