//! The kinds of error that a caller handles differently.

/// What kind of thing went wrong. The command maps each kind to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// A request that no host could meet, or that contradicts itself.
    Usage,
    /// Not enough memory, pages or limit, or all of it busy.
    Shortage,
    /// The host refuses: permission, cpuset, seccomp, kernel too old.
    Host,
    /// The guest failed, or found a byte that is not zero.
    Guest,
    /// Cancelled, or past its deadline.
    Stopped,
    /// Anything else.
    Internal,
}
