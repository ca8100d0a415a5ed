//! Readiness checks by name. Other modules report them; this module must depend on none of those.

use serde::{Deserialize, Serialize};

/// A condition of this program's readiness.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The name of the awaited task, for example `management/machines`: one word, the same for the whole run.
    pub name: String,
    /// Its state.
    pub state: CheckState,
    /// The reason why it isn't ready; of a ready one, the time for which nothing new is heard and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a check.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckState {
    /// Done, and still valid.
    Ready,
    /// Not done, or no longer valid; `Refresh` fails.
    Pending,
    /// Not done, and not waited for, since it concerns single groups only.
    #[serde(rename = "notWaitedFor")]
    Informational,
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

    /// Returns the check of one cause that stops all reads of clusters for now; `None` if there is none. It is logged when
    /// it begins.
    fn outage(&self) -> Option<Check> {
        None
    }
}

impl Check {
    /// Returns a check that is done.
    #[must_use]
    pub fn ready(name: impl Into<String>) -> Self {
        Self { name: name.into(), state: CheckState::Ready, reason: None }
    }

    /// Returns a check that is done, of which nothing is heard for now, with the time and the reason.
    #[must_use]
    pub fn ready_but(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { reason: Some(why.into()), ..Self::ready(name) }
    }

    /// Returns a check that isn't done, with the reason.
    #[must_use]
    pub fn pending(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { state: CheckState::Pending, ..Self::ready_but(name, why) }
    }

    /// Returns a check that isn't done and that nothing waits for, with the reason.
    #[must_use]
    pub fn informational(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { state: CheckState::Informational, ..Self::ready_but(name, why) }
    }

    /// Returns true if nothing has to wait for it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match self.state {
            CheckState::Ready | CheckState::Informational => true,
            CheckState::Pending => false,
        }
    }
}

impl<F: Fn() -> Vec<Check> + Send + Sync> Checks for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}
