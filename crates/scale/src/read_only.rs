//! Commands of a server that may not write: it decides as far as the index allows, logs and counts the decision, and
//! must write nothing. A command that would change something is refused. If an increase or a delete succeeded, Cluster
//! Autoscaler would wait for Nodes that never come, in every loop, whereas an error backs the group off. After a
//! successful decrease of the target size, it would consider the size corrected, and silently skip the rest of every loop
//! for all groups; an error ends the loop as well, and says why.

use std::sync::Arc;

use arcstr::ArcStr;
use rules::{GroupId, group_version::NotScalable, size};

use super::{
    error::ScaleError,
    refusal,
    request::{self, NamedNode},
    turn::{Shared, Turn},
};

/// A size that would be written.
struct PlannedWrite {
    from: i32,
    to: i32,
    /// The names of the Machines that would be removed.
    machines: Vec<String>,
}

/// A command of a server that may not write, and the client that asks for it.
pub(super) struct ReadOnlyCommand {
    pub(super) shared: Arc<Shared>,
    pub(super) id: GroupId,
    pub(super) client: Option<ArcStr>,
}

impl ReadOnlyCommand {
    pub(super) fn increase(self, delta: i32) -> Result<(), ScaleError> {
        self.decide_only("increase", |turn| {
            let view = turn.view()?;
            let from = view.version.replicas;
            let to = size::after_increase(from, delta, view.bounds).map_err(|error| refusal::size(&turn.id, &error))?;
            Ok(PlannedWrite { from, to, machines: Vec::new() })
        })
    }

    pub(super) fn decrease(self, delta: i32) -> Result<(), ScaleError> {
        self.decide_only("decrease", |turn| {
            let refused = |error| refusal::size(&turn.id, &error);
            size::check_decrease(delta).map_err(refused)?;
            let unchanged = |why: &str| refusal::would_be_left(&turn.id, why);
            if let Err(NotScalable::Excluded(why)) = turn.index().scale_view(&turn.id) {
                return Err(unchanged(&why.to_string()));
            }
            let view = turn.view()?;
            let from = view.version.replicas;
            let least = if view.keeps_unnamed_replicas() { from } else { view.machines_with_node };
            match size::after_decrease(from, delta, least, view.bounds.min).map_err(refused)? {
                to if to == from => Err(unchanged("all of it has Nodes, is the minimum, or is rolling out")),
                to => Ok(PlannedWrite { from, to, machines: Vec::new() }),
            }
        })
    }

    pub(super) fn delete(self, nodes: &[NamedNode]) -> Result<(), ScaleError> {
        self.decide_only("delete", |turn| {
            let view = turn.view()?;
            let named = request::request_of(turn, nodes)?;
            let machines: Vec<_> = named.machines.iter().map(|target| target.key.name.to_string()).collect();
            let count = machines.len() + named.replicas + named.instances;
            if count > 0 {
                request::check_rollout(&turn.id, &view, &named.machines, named.replicas)?;
            }
            let from = view.version.replicas;
            let to = size::after_delete(from, count, view.bounds).map_err(|error| refusal::size(&turn.id, &error))?;
            Ok(PlannedWrite { from, to, machines })
        })
    }

    /// Decides a command, logs and counts it. Returns `Ok` only where there is nothing to do.
    fn decide_only(
        self,
        name: &'static str,
        decide: impl FnOnce(&Turn) -> Result<PlannedWrite, ScaleError>,
    ) -> Result<(), ScaleError> {
        let turn = Turn::new(self.shared, self.id);
        let result = decide(&turn).and_then(|PlannedWrite { from, to, machines }| {
            if from == to && machines.is_empty() {
                return Ok(());
            }
            let machines = machines.join(",");
            turn.report_planned(name, (from, to), &machines);
            Err(refusal::would_be_scaled(&turn.id, (from, to), &machines))
        });
        turn.report_read_only(name, self.client.as_ref(), &result);
        result
    }
}
