//! What commands do while a group is rolling out: nothing is taken from it, since a smaller size is spread over its
//! MachineSets and may take another Machine than the named one. Increases go on.

use super::{Command, ScaleError};
use crate::{
    capi::SCALE_DOWN_WHILE_ROLLING_OUT,
    index::{Ongoing, ScaleView},
};

impl Command {
    /// Refuses to delete while the group is rolling out. To be asked before anything is written.
    pub(super) fn refuse_while_rolling_out(&self, view: &ScaleView) -> Result<(), ScaleError> {
        match &view.rollout {
            None => Ok(()),
            Some(rollout) => Err(ScaleError::FailedPrecondition(refusal(&self.id, rollout))),
        }
    }

    /// Whether a target size is left as it is because the group is rolling out. Only time mends that, and an error would
    /// end the caller's loop (kubernetes/autoscaler#7928).
    pub(super) fn is_left_while_rolling_out(&self, view: &ScaleView) -> bool {
        if let Some(rollout) = &view.rollout {
            tracing::info!(group = %self.id, size = view.size, "target size is left as it is: the group is {}", rollout.cause);
        }
        view.rollout.is_some()
    }
}

fn refusal(id: &impl std::fmt::Display, rollout: &Ongoing) -> String {
    format!(
        "{id} is {}, since {}; a smaller size could take another Machine than the named one, so nothing was changed: ask \
         again when it is done; if it never ends, set its annotation {SCALE_DOWN_WHILE_ROLLING_OUT} to \"true\"",
        rollout.cause, rollout.since
    )
}
