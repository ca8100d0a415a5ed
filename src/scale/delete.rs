//! DeleteNodes: what each Node stands for, which requests of a batch are accepted, and the log of what was accepted. Each
//! request is accepted as a whole or refused before anything is written, and each caller is answered for its own Nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Command, ScaleError, Tickets,
    api::{CallError, GroupChange},
    going::Leaving,
    known::Known,
    lane::{Delete, PutOff},
    metrics::Write,
    rule::{Accepted, Life, Listed, Named, RULE, Refusal, Request, Seen},
};
use crate::{
    capi::{ObjectKey, ScalableKind, Uid},
    index::{GroupVersion, NodeQuery, Resolved, ScaleView},
    informer::ResourceVersion,
    nodegroup::{Bounds, DeletionLog, LogAnnotation as _, Phase, PlaceholderRef, Ticket},
};

/// A Node as the caller names it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeName {
    /// Its name, or the instance id of one that has no Node.
    pub name: String,
    /// Its providerID, or the instance id of one that has no Node.
    pub provider_id: String,
    /// Its annotations.
    pub annotations: HashMap<String, String>,
}

/// A delete whose Nodes have been looked up. What they stand for stays, whatever becomes of it meanwhile.
pub(super) struct Sorted {
    pub(super) delete: Delete,
    pub(super) request: Request,
    /// The outcome when it was accepted last.
    pub(super) accepted: Accepted,
    /// The number of its placeholders that were given up not long ago, as this process remembers.
    given_up: usize,
    /// True if a write of the log with it had no answer. That write may arrive once the log is again what it was before.
    maybe_logged: bool,
}

impl Sorted {
    fn new(delete: Delete, request: Request, given_up: usize) -> Self {
        Self { delete, request, accepted: Accepted::default(), given_up, maybe_logged: false }
    }

    /// The Machines whose deletion it asks for.
    pub(super) fn machines(&self) -> impl Iterator<Item = &Named> {
        self.request.machines.iter().chain(&self.accepted.without_node)
    }

    /// Waits for a turn of its own. What it stands for stays.
    fn put_off(self) -> Delete {
        let put_off = PutOff { request: self.request, given_up: self.given_up };
        Delete { put_off: Some(put_off), ..self.delete }
    }

    /// The number of replicas and instances that only lower the size for it.
    pub(super) fn others(&self) -> usize {
        self.accepted.replicas + self.request.instances
    }
}

/// A round of a decision that failed, and the requests that wait for another one.
struct Again {
    error: CallError,
    sorted: Vec<Sorted>,
    /// Set if it is the log's write that failed.
    was_written: bool,
}

/// What was decided of deletes that stood together, and written to the log.
pub(super) struct Decided {
    /// The version that has in its log what was accepted.
    pub(super) version: GroupVersion,
    pub(super) bounds: Bounds,
    pub(super) accepted: Vec<Sorted>,
    /// The group's Machines, where they were counted for it.
    pub(super) listed: Listed,
    /// The versions of Machines that never joined, for their marks to test.
    pub(super) versions: HashMap<Uid, ResourceVersion>,
}

impl Command {
    pub(super) fn accepted(&self, delete: Delete) {
        self.inner.going.accept(&self.id, delete.nodes.iter().map(|node| Leaving::named(text_of(node))));
        self.answer(delete.caller, Ok(()));
    }

    /// Decides deletes that stand together and writes to the log what was accepted. Callers of what was refused are
    /// answered. Until something is written, each command ends with its caller.
    pub(super) async fn decide(&self, deletes: Vec<Delete>) -> Option<Decided> {
        // That the group isn't one is said before anything of its Nodes.
        if let Err(error) = self.view() {
            for delete in deletes {
                self.answer(delete.caller, Err(error.clone()));
            }
            return None;
        }
        let mut attempts = self.attempts();
        let mut read: Option<GroupVersion> = None;
        // The version on which the last write was rejected.
        let mut rejected_at: Option<GroupVersion> = None;
        let mut sorted: Vec<_> = deletes.into_iter().filter_map(|delete| self.sort(delete)).collect();
        let mut first_size = None;
        let mut tickets = Tickets::draw();
        let mut maybe_logged = false;
        loop {
            if sorted.is_empty() {
                return None;
            }
            let view = match self.view() {
                Ok(view) => view,
                Err(error) => return self.answer_all(sorted, &error.unless_logged(maybe_logged)),
            };
            let version = read.take().unwrap_or_else(|| view.version.clone());
            let log = match self.log_of(&version) {
                Ok(log) => log,
                Err(error) => return self.answer_all(sorted, &error.unless_logged(maybe_logged)),
            };
            if tickets.are_in(&log) {
                // A write whose answer was lost was done: nothing of it is refused any more, nor ends with its caller.
                let (listed, versions) = (Listed::default(), HashMap::new());
                let sorted = sorted.into_iter().map(|one| Sorted { maybe_logged: true, ..one }).collect();
                return Some(Decided { version, bounds: view.bounds, accepted: sorted, listed, versions });
            }
            if maybe_logged {
                tickets.renew();
            }
            let waiting = self.that_wait(sorted);
            let came_down = first_size.get_or_insert(version.replicas).saturating_sub(version.replicas);
            let round =
                self.accept_and_log(&version, &log, (&view, &tickets.current, came_down, maybe_logged), waiting).await;
            let error = match round {
                Ok(decided) => return decided,
                Err(again) => {
                    maybe_logged |= again.was_written && matches!(again.error, CallError::Unknown(..));
                    sorted = again.sorted;
                    again.error
                }
            };
            // Its caller may have left by the next attempt.
            if !matches!(error, CallError::Rejected(_) | CallError::Conflict(_)) {
                self.note_failed(&sorted);
            }
            if let CallError::Rejected(message) = &error
                && rejected_at.as_ref() == Some(&version)
                && !maybe_logged
            {
                return self.fail_all(sorted, &self.refuses(version.replicas, message));
            }
            rejected_at = matches!(error, CallError::Rejected(_)).then_some(version);
            if !attempts.again(&error).await {
                return self.fail_all(sorted, &self.failed(&error).unless_logged(maybe_logged));
            }
            match self.view_again(&mut attempts).await {
                Ok(version) => read = Some(version),
                Err(error) => return self.fail_all(sorted, &self.failed(&error).unless_logged(maybe_logged)),
            }
        }
    }

    /// Those whose callers still wait; the others end.
    fn that_wait(&self, sorted: Vec<Sorted>) -> Vec<Sorted> {
        let (gone, waiting) = sorted.into_iter().partition(|it| it.delete.caller.is_gone());
        self.answer_all(gone, &self.abandoned());
        waiting
    }

    /// The requests that name no Machine which couldn't be read: that of one holds up no other. The others are refused, or put
    /// off if time may help; they are given back with a failure where nothing else is left. What may have been logged is neither
    /// refused for good nor decided anew: the log's write may arrive yet.
    fn whose_machines_were_read(
        &self,
        sorted: Vec<Sorted>,
        known: &Known,
        maybe_logged: bool,
    ) -> Result<Vec<Sorted>, Again> {
        let (mut ready, mut open, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for one in sorted {
            let unread = one.request.machines.iter().filter(|named| known.unread.contains_key(&named.uid));
            self.couldnt_delete(unread.map(|named| (&named.name, &named.uid)));
            match one.request.machines.iter().find_map(|named| known.unread.get(&named.uid)) {
                None => ready.push(one),
                Some(error) if error.is_final() && !maybe_logged => {
                    self.answer(one.delete.caller, Err(self.failed(error)));
                }
                Some(error) => {
                    open.push(one);
                    failures.push(error);
                }
            }
        }
        if ready.is_empty()
            && let Some(failure) = failures.iter().find(|error| !error.is_final()).or(failures.first())
        {
            return Err(Again { error: CallError::clone(failure), sorted: open, was_written: false });
        }
        if maybe_logged {
            for (one, failure) in open.into_iter().zip(failures) {
                self.answer(one.delete.caller, Err(self.failed(failure).unless_logged(maybe_logged)));
            }
        } else {
            self.inner.lanes.put_off(&self.id, open.into_iter().map(Sorted::put_off).collect());
        }
        Ok(ready)
    }

    /// One round: learns what is known of the named Machines, accepts what can be, and logs it. On a failure the deletes
    /// that wait for another round are given back.
    async fn accept_and_log(
        &self,
        version: &GroupVersion,
        log: &DeletionLog,
        (view, ticket, came_down, maybe_logged): (&ScaleView, &Ticket, i32, bool),
        sorted: Vec<Sorted>,
    ) -> Result<Option<Decided>, Again> {
        let named = sorted.iter().flat_map(|it| &it.request.machines);
        let counts = sorted.iter().any(|it| it.request.replicas + it.request.instances > 0);
        let known = match self.learn(version, log, named, counts).await {
            Ok(known) => known,
            Err(error) => return Err(Again { error, sorted, was_written: false }),
        };
        // The reads may have taken as long as a caller waits.
        let sorted = self.whose_machines_were_read(self.that_wait(sorted), &known, maybe_logged)?;
        if sorted.is_empty() {
            return Ok(None);
        }
        let bounds = view.bounds;
        let remembered = sorted.iter().map(|it| it.given_up).sum();
        let seen = Seen {
            log,
            replicas: version.replicas,
            bounds,
            lives: &known.lives,
            joined: &known.joined,
            listed: &known.listed,
            counts_deleting: self.api().counts_deleting(),
            given_up: delete_rule::given_up(log, &known.listed, came_down, remembered),
        };
        let mut acceptance = RULE.acceptance(seen, ticket.clone());
        let mut accepted = Vec::new();
        for mut one in sorted {
            if let Some(rollout) = &view.rollout
                && let Err(error) = self.refuse_while_rolling_out(rollout, &mut one.request, log, &known.lives)
            {
                self.answer(one.delete.caller, Err(error.unless_logged(maybe_logged)));
                continue;
            }
            match acceptance.accept(&one.request) {
                Ok(to) => accepted.push(Sorted { accepted: to, maybe_logged, ..one }),
                Err(Refusal::BelowMin(below)) if !maybe_logged => {
                    match self.replace_one(&one.request, log, view, self.refused(&below)).await {
                        Ok(()) => self.accepted(one.delete),
                        Err(error) => self.answer(one.delete.caller, Err(error)),
                    }
                }
                Err(refusal) => {
                    self.answer(one.delete.caller, Err(self.refusal(&refusal).unless_logged(maybe_logged)));
                }
            }
        }
        let log = acceptance.log().cloned();
        let Known { listed, versions, .. } = known;
        let Some(log) = log else {
            return Ok(Some(Decided { version: version.clone(), bounds, accepted, listed, versions }));
        };
        let text = match log.print() {
            Ok(text) => text,
            Err(error) => {
                let error = CallError::Refused(error.to_string());
                return Err(Again { error, sorted: accepted, was_written: false });
            }
        };
        self.logs(log.entries().iter().filter(|entry| entry.ticket == *ticket));
        let change = GroupChange { replicas: None, log: text };
        match self.wrote_log(self.write(Write::Log, self.api().write_group(&self.id, version, &change)).await) {
            Ok(version) => Ok(Some(Decided { version, bounds, accepted, listed, versions })),
            // It may be done: the next round finds these in the log then.
            Err(error) => Err(Again { error, sorted: accepted, was_written: true }),
        }
    }

    /// What a request has come to whose Machines were lowered, or were found to need nothing.
    pub(super) async fn end_of(&self, log: &DeletionLog, delete: &Sorted) -> Result<(), ScaleError> {
        for named in delete.machines() {
            if log.get(&named.uid).is_some() || !self.index().has_machine(&self.machine_key(&named.name), &named.uid) {
                continue;
            }
            // It needed nothing, being deleted or gone; or another copy has taken it back.
            match self.read_life(named).await {
                Ok(Life::Gone | Life::Deleting) => {}
                Ok(Life::Alive) => {
                    return Err(ScaleError::Aborted(format!(
                        "{}: the deletion of Machine {} was given up by another copy of this program; try again",
                        self.id, named.name
                    )));
                }
                Err(error) => {
                    self.couldnt_delete([(&named.name, &named.uid)]);
                    return Err(self.failed(&error));
                }
            }
        }
        Ok(())
    }

    /// Looks up the Nodes of a delete; one that names a wrong one is answered.
    fn sort(&self, mut delete: Delete) -> Option<Sorted> {
        if let Some(PutOff { request, given_up }) = delete.put_off.take() {
            return Some(Sorted::new(delete, request, given_up));
        }
        let named = self.find(&delete.nodes).and_then(|named| self.warn_of_instances(&named).map(|()| named));
        match named {
            Ok(Nodes { machines, replicas, instances }) => {
                let named = |(key, (uid, never_joined)): (ObjectKey, _)| Named { name: key.name, uid, never_joined };
                let request = Request {
                    machines: machines.into_iter().map(named).collect(),
                    replicas: replicas.len(),
                    instances: instances.len(),
                };
                let given_up = replicas.iter().filter(|text| self.inner.going.has(&self.id, text)).count();
                Some(Sorted::new(delete, request, given_up))
            }
            Err(error) => {
                self.answer(delete.caller, Err(error));
                None
            }
        }
    }

    /// Finds what each Node stands for.
    pub(super) fn find(&self, nodes: &[NodeName]) -> Result<Nodes, ScaleError> {
        let mut named = Nodes::default();
        if self.id.kind == ScalableKind::MachinePool {
            self.inner.going.forget_gone(self.index(), &self.id);
        }
        for node in nodes {
            let query = NodeQuery { name: &node.name, provider_id: &node.provider_id, annotations: &node.annotations };
            let text = text_of(node);
            match self.index().resolve(query) {
                Resolved::Machine(machine, Some(group)) if group == self.id => {
                    let never_joined = PlaceholderRef::parse(text).is_some() && !machine.deleting;
                    let key = &machine.meta.key;
                    let node = || self.index().knows_node_of(key, machine.provider_id.as_ref());
                    let has_joined = never_joined && (machine.node_name.is_some() || node());
                    if has_joined && !self.has_lowered(&machine.meta.uid) {
                        return Err(self.has_joined_meanwhile(&key.name));
                    }
                    named.machines.insert(key.clone(), (machine.meta.uid.clone(), never_joined));
                }
                Resolved::Replica(group) if group == self.id => {
                    named.replicas.insert(text.to_owned());
                }
                Resolved::PoolInstance(group) if group == self.id => {
                    if self.inner.going.has(&self.id, text) {
                        continue;
                    }
                    // Without a mark on its Machine another instance would go.
                    if !self.index().members(&self.id).is_empty() {
                        return Err(self.is_not_known_as_machine());
                    }
                    named.instances.insert(text.to_owned());
                }
                Resolved::Machine(_, Some(other)) | Resolved::Replica(other) | Resolved::PoolInstance(other) => {
                    return Err(ScaleError::InvalidArgument(format!(
                        "Node {text} belongs to node group {other}, not to {}; nothing was changed",
                        self.id
                    )));
                }
                // It has gone since.
                Resolved::Unknown if self.inner.going.has(&self.id, text) => {}
                Resolved::Machine(_, None) | Resolved::Unknown => {
                    return Err(ScaleError::NotFound(format!(
                        "Node {text} leads to no Machine of node group {}: neither its providerID nor its annotations \
                         are known; nothing was changed",
                        self.id
                    )));
                }
            }
        }
        Ok(named)
    }

    /// Returns true if the size was lowered for a Machine: that it has joined since doesn't keep it.
    fn has_lowered(&self, uid: &Uid) -> bool {
        let log = self.view().ok().and_then(|view| view.version.log().ok());
        log.is_some_and(|log| log.get(uid).is_some_and(|entry| entry.phase == Phase::Lowered))
    }

    fn is_not_known_as_machine(&self) -> ScaleError {
        ScaleError::Aborted(format!(
            "{}: the MachinePool has Machines, and that of a named instance isn't known yet; nothing was changed, try again in \
             some seconds",
            self.id
        ))
    }

    pub(super) fn has_joined_meanwhile(&self, machine: &str) -> ScaleError {
        ScaleError::FailedPrecondition(format!(
            "{}: Machine {machine} has a Node by now, and was named as an instance that never joined; nothing was changed \
             for it, ask for the group's instances again",
            self.id
        ))
    }

    pub(super) fn replaced(&self, named: usize, left: usize) -> ScaleError {
        ScaleError::FailedPrecondition(format!(
            "{}: {named} replicas without a Machine were named and only {left} are left: the others have a Machine by \
             now; the size isn't changed for them, ask for the group's instances again",
            self.id
        ))
    }

    /// Instances of a MachinePool that are no Machines can't be deleted by name.
    fn warn_of_instances(&self, named: &Nodes) -> Result<(), ScaleError> {
        if named.instances.is_empty() {
            return Ok(());
        }
        if self.inner.options.machine_pool_deletes == super::MachinePoolDeletes::Refuse {
            return Err(ScaleError::FailedPrecondition(format!(
                "{}: the MachinePool has no Machines for these Nodes, so that its infrastructure provider would choose \
                 which instance goes; nothing was changed: it is refused by --machine-pool-deletes=refuse",
                self.id
            )));
        }
        tracing::warn!(group = %self.id, "the MachinePool has no Machines for these Nodes: its infrastructure provider chooses which instance goes");
        Ok(())
    }

    pub(super) fn refusal(&self, refusal: &Refusal) -> ScaleError {
        match refusal {
            Refusal::InTheWay(name) => ScaleError::Aborted(format!(
                "{}: Machine {name} may go for a smaller target size just now; try again in some seconds",
                self.id
            )),
            Refusal::HasJoined(name) => self.has_joined_meanwhile(name),
            Refusal::Replaced { named, left } => self.replaced(*named, *left),
            Refusal::IsOfMachines => self.is_not_known_as_machine(),
            Refusal::BelowMin(error) => self.refused(error),
            Refusal::Log(error) => ScaleError::Aborted(format!("{}: {error}", self.id)),
        }
    }

    /// The API server refuses these, or gives no answer.
    fn fail_all(&self, sorted: Vec<Sorted>, error: &ScaleError) -> Option<Decided> {
        self.note_failed(&sorted);
        self.answer_all(sorted, error)
    }

    fn note_failed(&self, sorted: &[Sorted]) {
        let machines = sorted.iter().flat_map(|one| &one.request.machines);
        self.couldnt_delete(machines.map(|named| (&named.name, &named.uid)));
    }

    /// Answers a request that was accepted. None whose log's write may arrive yet is refused for good.
    pub(super) fn end(&self, one: Sorted, end: Result<(), ScaleError>) {
        match end {
            Ok(()) => self.accepted(one.delete),
            Err(error) => self.answer(one.delete.caller, Err(error.unless_logged(one.maybe_logged))),
        }
    }

    pub(super) fn answer_all(&self, sorted: Vec<Sorted>, error: &ScaleError) -> Option<Decided> {
        for one in sorted {
            self.answer(one.delete.caller, Err(error.clone()));
        }
        None
    }
}

/// What Nodes stand for.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// Machines, and whether each is given up as one that never joined; by name, so that one named twice counts once.
    pub(super) machines: BTreeMap<ObjectKey, (Uid, bool)>,
    /// Replicas without a Machine, which only lower the size.
    pub(super) replicas: HashSet<String>,
    /// Instances of a MachinePool that are no Machines, which only lower the size.
    pub(super) instances: HashSet<String>,
}

/// What a Node is known by.
fn text_of(node: &NodeName) -> &str {
    if node.provider_id.is_empty() { &node.name } else { &node.provider_id }
}
