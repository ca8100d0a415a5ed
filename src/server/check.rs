//! Readiness checks by name. The modules that do the work report them; this one doesn't know those modules.

/// One thing that must be done before this program is ready.
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
    /// Done, and still so.
    Ready,
    /// Not done, or no longer, and why.
    Pending(String),
    /// Not done, and not waited for: what it lacks concerns single groups only.
    Informational(String),
}

/// Where the checks come from. It is asked on each probe, so it must answer from memory.
pub trait Checks: Send + Sync {
    /// All checks, ready ones too, in the order to show them in.
    fn checks(&self) -> Vec<Check>;
}

impl Check {
    /// A check that is done.
    #[must_use]
    pub fn ready(name: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Ready }
    }

    /// A check that isn't done, and why.
    #[must_use]
    pub fn pending(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Pending(why.into()) }
    }

    /// A check that isn't done and that nothing waits for, and why it isn't.
    #[must_use]
    pub fn informational(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Informational(why.into()) }
    }

    /// Returns true if nothing has to wait for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self.state {
            CheckState::Ready | CheckState::Informational(_) => true,
            CheckState::Pending(_) => false,
        }
    }
}

impl<F: Fn() -> Vec<Check> + Send + Sync> Checks for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}
