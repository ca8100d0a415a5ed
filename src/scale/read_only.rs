//! Commands of a server that may not write: what would be done is decided as far as memory tells, said and counted, and
//! nothing is done.
//!
//! An increase and a delete are refused, since to say that they were done would have Cluster Autoscaler wait for Nodes
//! that never come, and again in every loop: an error backs the group off. A decrease of the target size is a success that
//! changes nothing, as while a group is rolling out: an error would end the caller's loop for all groups
//! (kubernetes/autoscaler#7928).

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Command, NodeName, Scale, ScaleError};
use crate::{
    index::NotScalable,
    nodegroup::{GroupId, size},
};

/// A size that would be written.
struct Would {
    from: i32,
    to: i32,
    /// The Machines that would go for it, by name.
    machines: Vec<String>,
}

impl Scale {
    /// Whether nothing is written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.options.read_only
    }

    pub(super) fn would_increase(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        self.tell_only(id, "increase", |command| {
            let view = command.view()?;
            let from = view.version.replicas;
            let to = size::increase(from, delta, view.bounds).map_err(|error| command.refused(&error))?;
            Ok(Would { from, to, machines: Vec::new() })
        })
    }

    pub(super) fn would_decrease(&self, id: GroupId, delta: i32) -> Result<(), ScaleError> {
        let told = self.tell_only(id, "decrease", |command| {
            size::decrease(0, delta, 0).map_err(|error| command.refused(&error))?;
            if let Err(NotScalable::LeftOut(why)) = command.index().scale_view(&command.id) {
                return Err(ScaleError::ReadOnly(format!("{}: the size would be left as it is: {why}", command.id)));
            }
            let view = command.view()?;
            let from = view.version.replicas;
            let least = if view.rollout.is_some() { from } else { view.machines_with_node };
            let to = size::decrease(from, delta, least).map_err(|error| command.refused(&error))?;
            Ok(Would { from, to, machines: Vec::new() })
        });
        match told {
            Err(ScaleError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    pub(super) fn would_delete(&self, id: GroupId, nodes: &[NodeName]) -> Result<(), ScaleError> {
        self.tell_only(id, "delete", |command| {
            let view = command.view()?;
            let log = command.log_of(&view.version)?;
            let named = command.find(nodes)?;
            let there = command.index().machines(&command.id);
            let is_going = |uid: &_| {
                log.get(uid).is_some() || !there.iter().any(|machine| machine.meta.uid == *uid && !machine.deleting)
            };
            let machines: Vec<_> =
                named.machines.iter().filter(|(_, uid)| !is_going(uid)).map(|(key, _)| key.name.to_string()).collect();
            let count = machines.len() + named.replicas.len() + named.instances.len();
            if let Some(rollout) = view.rollout.as_ref().filter(|_| count > 0) {
                return Err(ScaleError::FailedPrecondition(command.rollout_refusal(rollout)));
            }
            let from = view.version.replicas;
            let to = size::delete(from, count, view.bounds).map_err(|error| command.refused(&error))?;
            Ok(Would { from, to, machines })
        })
    }

    /// Decides, says and counts; never `Ok`, but where there is nothing to do.
    fn tell_only(
        &self,
        id: GroupId,
        name: &'static str,
        decide: impl FnOnce(&Command) -> Result<Would, ScaleError>,
    ) -> Result<(), ScaleError> {
        let command = Command { inner: Arc::clone(&self.inner), id, resized: Mutex::default() };
        let result = decide(&command).and_then(|Would { from, to, machines }| {
            if from == to && machines.is_empty() {
                return Ok(());
            }
            let machines = machines.join(",");
            tracing::info!(group = %command.id, command = name, from, to, machines, "read-only: this size would be written");
            let what = if machines.is_empty() { String::new() } else { format!(", for Machines {machines}") };
            Err(ScaleError::ReadOnly(format!(
                "{}: would be scaled from {from} to {to}{what}; nothing was changed, since this server is started with \
                 --read-only",
                command.id
            )))
        });
        if let Err(error) = &result
            && !matches!(error, ScaleError::ReadOnly(_))
        {
            tracing::info!(group = %command.id, command = name, code = error.code(), "read-only: this would be refused: {error}");
        }
        if let Err(error) = &result {
            self.inner.history.answered(&command.id, name, error);
        }
        self.inner.metrics.count_command(name, result.as_ref().err());
        result
    }
}
