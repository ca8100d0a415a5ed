//! What commands do while a group is rolling out: nothing is taken from it, since a smaller size is spread over its
//! MachineSets and may take another Machine than the named one. Increases go on.

use std::collections::HashMap;

use super::{
    Command, ScaleError,
    rule::{Life, RULE, Request},
};
use crate::{
    capi::{SCALE_DOWN_WHILE_ROLLING_OUT, Uid},
    index::{Ongoing, ScaleView},
    nodegroup::DeletionLog,
};

impl Command {
    /// Refuses a request that would take a Machine or a replica from the group.
    pub(super) fn refuse_while_rolling_out(
        &self,
        rollout: &Ongoing,
        request: &mut Request,
        log: &DeletionLog,
        lives: &HashMap<Uid, Life>,
    ) -> Result<(), ScaleError> {
        if RULE.admits_in_rollout(request, log, lives) {
            Ok(())
        } else {
            Err(ScaleError::FailedPrecondition(self.rollout_refusal(rollout)))
        }
    }

    /// Returns true if a target size is left as it is because the group is rolling out. Only time mends that. An error would
    /// fail the caller's loop (kubernetes/autoscaler#7928); a success ends it as well, but it isn't asked again.
    pub(super) fn is_left_while_rolling_out(&self, view: &ScaleView) -> bool {
        if let Some(rollout) = &view.rollout {
            tracing::info!(group = %self.id, size = view.version.replicas, "target size is left as it is: the group is {}", rollout.cause);
        }
        view.rollout.is_some()
    }

    pub(super) fn rollout_refusal(&self, rollout: &Ongoing) -> String {
        format!(
            "{} is {}, since {}; a smaller size could take another Machine than the named one, so nothing was changed: \
             ask again when it is done; if it never ends, set its annotation {SCALE_DOWN_WHILE_ROLLING_OUT} to \"true\"",
            self.id, rollout.cause, rollout.since
        )
    }
}
