//! The bounds of a search.

use crate::world::{Budget, Set};

/// The bounds of the search.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each widens or narrows the search by itself")]
pub struct Bounds {
    /// The number of copies of the program, 1 or 2.
    pub copies: usize,
    /// The number of Machines that have a Node.
    pub nodes: usize,
    /// The number of Machines that have no Node yet.
    pub pending: usize,
    /// The number of replicas that have no Machine yet.
    pub missing: usize,
    /// The group's min size.
    pub min: i8,
    /// The maximum number of Machines that one DeleteNodes names.
    pub batch: i8,
    /// The number of versions that a controller's view keeps, including the one that it acted on last.
    pub lag: usize,
    /// True if the MachineSet controller sees the marks that were set before the smaller size that it sees.
    pub sees_marks: bool,
    /// True if the MachineSet controller deletes Machines one by one, while everything else goes on.
    pub deletes_one_by_one: bool,
    /// True to accept two violations that no rule can prevent: another Machine goes because a named one that somebody
    /// else deleted was replaced before the MachineSet controller saw the smaller size; or a marked Machine goes for
    /// another smaller size while its own is refused for good.
    pub admits_known: bool,
    /// True if the group is a MachineSet without a MachineDeployment, whose controller sees the log and size directly.
    pub is_bare: bool,
    /// True if the group is a MachinePool, whose infrastructure provider creates the Machines.
    pub is_pool: bool,
    /// True if a provider may take longer than Machines are left to it.
    pub is_slow: bool,
    /// The number of Machines of an old MachineSet, in a MachineDeployment that is rolling out; one of them surges.
    pub old: usize,
    /// True if the MachineDeployment controller copies annotations to old MachineSets too (since Cluster API 1.12).
    pub copies_to_old: bool,
    /// True if a Machine that is being deleted loses its Node before it is gone.
    pub loses_nodes: bool,
    /// True if every reconcile of the MachineSet controller ends with an error after all of its work.
    pub always_errs: bool,
    /// True if the MachineSet controller, after an error, doesn't wait until its cache shows its own writes.
    pub forgets_own_writes: bool,
    /// True if a call that removes a mark may take effect later, while everything else goes on.
    pub splits_unmarks: bool,
    /// True if the `nodeRef` of a Machine and the program's watches of the Nodes lag behind its Node.
    pub lags_node_refs: bool,
    /// The Machines that Cluster Autoscaler may name; `None` for all.
    pub may_be_named: Option<Set>,
    /// True if a DeleteNodes may join one in progress.
    pub joins_batches: bool,
    /// True if the copies are interchangeable, so that one order of them stands for both. Traces then number them in
    /// order of appearance.
    pub merges_copies: bool,
    /// True if no Machine is gone while a size is on its way that may be meant for it: controllers are faster.
    pub is_prompt: bool,
    /// True to keep what happens to Machines and sizes, by which rules are compared.
    pub tallies: bool,
    /// The number of times that each event may happen.
    pub budget: Budget,
}

impl Bounds {
    /// Returns true if a Machine has been created since the beginning.
    pub(crate) fn is_new(&self, machine: usize) -> bool {
        machine >= self.nodes + self.pending + self.old
    }

    /// Returns the bounds of a small search: two copies and three Machines with Nodes.
    #[must_use]
    pub fn small(budget: Budget) -> Self {
        Self {
            copies: 2,
            nodes: 3,
            pending: 0,
            missing: 0,
            min: 0,
            batch: 1,
            lag: 2,
            sees_marks: true,
            deletes_one_by_one: false,
            admits_known: true,
            is_bare: false,
            is_pool: false,
            is_slow: false,
            old: 0,
            copies_to_old: false,
            loses_nodes: budget.placeholders + budget.mixed > 0,
            always_errs: false,
            forgets_own_writes: false,
            splits_unmarks: budget.late_marks > 0,
            lags_node_refs: false,
            may_be_named: None,
            joins_batches: false,
            merges_copies: true,
            is_prompt: false,
            tallies: false,
            budget,
        }
    }
}
