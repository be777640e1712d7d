//! The methods by name, and which of them this CPU has.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::arch::{self, Cached, Kernel};

/// A way of clearing that this CPU has: it cannot be had otherwise.
///
/// ```
/// use prezero_clear::{Method, MethodError};
///
/// assert_eq!(Method::named("portable")?.name(), "portable");
/// assert!(Method::available().any(|method| method == Method::cached()));
/// # Ok::<(), MethodError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Method(Kernel);

/// What a method's stores do to the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stores {
    /// They bring each line into the caches and displace what was there.
    Cached,
    /// They go around the caches and are weakly ordered: only a fence makes them visible in order.
    Uncached,
}

impl Method {
    /// Every name, whatever the CPU.
    pub const NAMES: &'static [&'static str] = &arch::NAMES;

    /// The methods of this CPU, in the order of [`Method::NAMES`]; `cached` and `portable` are always among them.
    pub fn available() -> impl Iterator<Item = Self> {
        Kernel::available().map(Self)
    }

    /// The method of that name.
    ///
    /// # Errors
    ///
    /// When there is none, or this CPU lacks it.
    pub fn named(name: &str) -> Result<Self, MethodError> {
        if let Some(method) = Self::available().find(|method| method.name() == name) {
            return Ok(method);
        }
        let name = name.to_owned();
        Err(match Self::NAMES.contains(&name.as_str()) {
            true => MethodError::Unavailable { name },
            false => MethodError::Unknown { name },
        })
    }

    /// Ordinary stores, the widest that this CPU has.
    #[must_use]
    pub fn cached() -> Self {
        Self(Kernel::Cached(Cached::detect()))
    }

    /// Its name, one of [`Method::NAMES`].
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// What its stores do to the caches.
    #[must_use]
    pub fn stores(self) -> Stores {
        self.0.stores()
    }

    pub(crate) fn kernel(self) -> Kernel {
        self.0
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(name: &str) -> Result<Self, MethodError> {
        Self::named(name)
    }
}

/// Why there is no method of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MethodError {
    /// No CPU has it.
    Unknown {
        /// The name.
        name: String,
    },
    /// This CPU lacks it.
    Unavailable {
        /// The name.
        name: String,
    },
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name } => {
                let names = Method::NAMES.join(", ");
                write!(f, "There is no clearing method {name}, only {names}")
            }
            Self::Unavailable { name } => {
                let needs = arch::needs(name);
                write!(f, "This CPU cannot clear with {name}, which needs {needs}")
            }
        }
    }
}

impl Error for MethodError {}
