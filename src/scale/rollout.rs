//! What commands do while a group is rolling out: nothing is taken from it, since a smaller size is spread over its
//! MachineSets and may take another Machine than the named one. Increases go on.

use std::collections::HashMap;

use super::{
    Command, ScaleError,
    rule::{Life, Request},
};
use crate::{
    capi::{SCALE_DOWN_WHILE_ROLLING_OUT, Uid},
    index::{Ongoing, ScaleView},
    nodegroup::DeletionLog,
};

impl Command {
    /// Refuses a request that would take a Machine or a replica from the group. What is decided already goes on, and what
    /// somebody else is deleting is a success that lowers nothing: it is the rollout's, or will be made good by it.
    pub(super) fn refuse_while_rolling_out(
        &self,
        rollout: &Ongoing,
        request: &mut Request,
        log: &DeletionLog,
        lives: &HashMap<Uid, Life>,
    ) -> Result<(), ScaleError> {
        let is_logged = |uid: &Uid| log.get(uid).is_some();
        let takes = |uid: &Uid| !is_logged(uid) && lives.get(uid) == Some(&Life::Alive);
        if !request.is_of_machines() || request.machines.iter().any(|named| takes(&named.uid)) {
            return Err(ScaleError::FailedPrecondition(self.rollout_refusal(rollout)));
        }
        request.machines.retain(|named| is_logged(&named.uid));
        Ok(())
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
