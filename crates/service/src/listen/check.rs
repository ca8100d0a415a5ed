//! Readiness checks by name. Other modules report them; this module must depend on none of those.

/// A condition of this program's readiness.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Check {
    /// The name of the awaited task, for example `management/machines`: one word, the same for the whole run.
    pub name: String,
    /// Its state.
    pub state: CheckState,
}

/// The state of a check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CheckState {
    /// Done, and still valid.
    Ready,
    /// Done, and still valid, but nothing new is heard for now, with the time and the reason.
    Broken(String),
    /// Not done, or no longer valid, with the reason.
    Pending(String),
    /// Not done, and not waited for, since it concerns single groups only.
    Informational(String),
}

/// A source of checks. It is called on each probe, so it must answer from memory.
pub trait Checks: Send + Sync {
    /// Returns all checks, ready ones included, in the order to show them in.
    fn checks(&self) -> Vec<Check>;

    /// Returns those that something waits for and that aren't done. A source whose other checks look at many parts
    /// leaves these parts out.
    fn pending(&self) -> Vec<Check> {
        self.checks().into_iter().filter(|check| !check.is_ready()).collect()
    }
}

impl Check {
    /// Returns a check that is done.
    #[must_use]
    pub fn ready(name: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Ready }
    }

    /// Returns a check that is done, of which nothing is heard for now, with the time and the reason.
    #[must_use]
    pub fn broken(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Broken(why.into()) }
    }

    /// Returns a check that isn't done, with the reason.
    #[must_use]
    pub fn pending(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Pending(why.into()) }
    }

    /// Returns a check that isn't done and that nothing waits for, with the reason.
    #[must_use]
    pub fn informational(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Informational(why.into()) }
    }

    /// Returns true if nothing has to wait for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self.state {
            CheckState::Ready | CheckState::Broken(_) | CheckState::Informational(_) => true,
            CheckState::Pending(_) => false,
        }
    }
}

impl<F: Fn() -> Vec<Check> + Send + Sync> Checks for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}
