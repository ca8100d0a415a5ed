//! What must be done before this program is ready, by name. The rooms that do it are asked; they aren't known here.

/// One thing that must be done before this program is ready.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Check {
    /// What is waited for, for example `management/machines`: one word, the same for the whole run.
    pub name: String,
    /// How far it is.
    pub state: CheckState,
}

/// How far a check is.
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

    /// Whether nothing has to wait for it.
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
