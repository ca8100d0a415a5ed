//! DeleteNodes, from the request to the last call: the named Machines are deleted, and then the size is lowered by
//! those that this command has deleted.
//!
//! A MachineSet counts a Machine that is being deleted as a replica until it is gone, and takes such Machines first when
//! its size comes down. So a smaller size that follows a deletion is spent on that Machine. The resourceVersion in each
//! DELETE makes one of two racing commands its owner; the other one lowers nothing. Where it can't be known whether a
//! DELETE or a smaller size was done, the size is left: a Machine is then replaced, while a size that is lowered once
//! too often takes a Node that nobody named. docs/design/writes.md has what else can go wrong.
//!
//! Deletes that come together, or while the first Machines are being deleted, are one batch with one smaller size. Where
//! a DELETE is slow, the size isn't kept waiting for it: MachineSets replace a Machine as soon as it is gone.

use std::{pin::pin, time::Duration};

use arcstr::ArcStr;
use futures::{
    StreamExt as _,
    future::{self, Either},
    stream,
};
use parking_lot::Mutex;
use rules::capi::Uid;
use rules::{SizeError, call_error::CallError, field_manager::SizeWriter, group_version::GroupVersion, size};
use tokio::time::{Instant, timeout};

use super::{
    accepted::DeletionTarget,
    api::SizeCall,
    error::ScaleError,
    events::EventContent,
    mark,
    metrics::Write,
    queue::Delete,
    read::{self, GroupMachines},
    refusal, replace,
    request::{self, Request, Target},
    size_write::{Aim, Resize, Written, as_i32},
    turn::Turn,
};
use index::{Hold, ScaleView};

/// The maximum number of Machines that are deleted at a time.
const SIDE_BY_SIDE: usize = 16;
/// The number of times that a batch is decided, if somebody else keeps writing the size meanwhile.
const MOST_ROUNDS: usize = 6;
/// The time for which deletes may join a batch; later ones wait for the next turn.
const OPEN_FOR: Duration = Duration::from_millis(500);
/// The time after which a smaller size no longer waits for DELETEs without an answer.
const SLOW: Duration = Duration::from_secs(2);

/// What became of a Machine that was to go.
#[derive(Debug)]
pub(super) enum Fate {
    /// This command has deleted it, or marked it: the size is to be lowered.
    Removed,
    /// This command has deleted or marked it, and has lowered the size for it.
    Lowered,
    /// This command has deleted or marked it, and couldn't lower the size for it.
    NotLowered(ScaleError),
    /// It is gone, or somebody else is deleting it. This command doesn't lower the size for it.
    RemovedByOthers,
    /// It may be this command that has deleted it: the size isn't lowered, and it may be replaced.
    MaybeRemoved,
    /// It was given up as one that never joined, and has a Node by now.
    HasJoined,
    /// It stays: the API server refuses to delete it, or can't be reached.
    Stays(CallError),
}

impl Fate {
    /// Returns true if this command has deleted or marked the Machine.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self, Self::Removed | Self::Lowered | Self::NotLowered(_))
    }
}

/// A request whose caller waits for its answer.
struct Waiting {
    delete: Delete,
    request: Request,
    /// True if it names Machines that were removed, and for which the size is still to be lowered.
    awaits_smaller_size: bool,
    error: Option<ScaleError>,
}

/// The requests of one turn.
struct Batch<'a> {
    turn: &'a Turn,
    waiting: Vec<Waiting>,
    /// The Machines that the batch has taken on.
    fates: Vec<(Target, Fate)>,
    /// The number of replicas and instances without a Machine for which the size is to be lowered.
    replicas: usize,
    instances: usize,
    /// The Machines of the group, if they were counted a moment ago.
    listed: Option<GroupMachines>,
}

/// The decision on the requests of one round.
struct Decided {
    accepted: Vec<(Delete, Request)>,
    /// The Machines that are to go for the accepted ones.
    targets: Vec<Target>,
    /// The size that results.
    size: i32,
    /// The requests that would pass the minimum.
    below: Vec<(Delete, Request, SizeError)>,
}

/// Carries out deletes and those that join them, and answers their callers.
pub(super) async fn delete(turn: &Turn, deletes: Vec<Delete>) {
    let mut batch = Batch { turn, waiting: Vec::new(), fates: Vec::new(), replicas: 0, instances: 0, listed: None };
    let (begun, mut deletes) = (Instant::now(), deletes);
    while !deletes.is_empty() {
        batch.carry_out(deletes).await;
        let is_open = begun.elapsed() < OPEN_FOR && still_to_lower(&batch.fates).next().is_some();
        deletes = if is_open { turn.shared.lanes.more_deletes(&turn.id) } else { Vec::new() };
        turn.note_callers(deletes.iter().map(|delete| &delete.caller));
        for delete in &deletes {
            crate::traces::asked_by(&delete.caller.trace);
        }
    }
    batch.lower().await;
    batch.answer();
}

impl Batch<'_> {
    /// Takes on deletes: decides, sends the smaller size as a dry run, and deletes the Machines.
    async fn carry_out(&mut self, deletes: Vec<Delete>) {
        let (mut requests, mut rounds) = (self.resolve(deletes), 0);
        let (accepted, targets) = loop {
            rounds += 1;
            self.listed = match self.count(&requests).await {
                Ok(listed) => listed,
                Err(error) => {
                    let counted: Vec<_> = requests.extract_if(.., |(_, request)| request.lowers_by_itself()).collect();
                    self.record_failed(counted.iter().flat_map(|(_, request)| &request.machines));
                    self.refuse(counted, &refusal::failed(&self.turn.id, &error));
                    None
                }
            };
            let view = match self.turn.view() {
                Ok(view) => view,
                Err(error) => return self.refuse(requests, &error),
            };
            let mut decided = self.decide(&view, std::mem::take(&mut requests));
            self.replace_or_accept(&view, &mut decided).await;
            let Decided { accepted, targets, size, .. } = decided;
            if targets.is_empty() {
                break (accepted, targets);
            }
            match dry_run_size(self.turn, &view.version, size).await {
                Ok(()) => break (accepted, targets),
                Err(TryAgain::Anew) if rounds < MOST_ROUNDS => requests = accepted,
                Err(TryAgain::Anew) => return self.refuse(accepted, &refusal::changed(&self.turn.id)),
                Err(TryAgain::No(error)) => {
                    self.record_failed(&targets);
                    return self.refuse(accepted, &error);
                }
            }
        };
        // From here on the command runs to its end without its callers.
        let (accepted, gone): (Vec<_>, Vec<_>) = accepted.into_iter().partition(|(delete, _)| !delete.caller.is_gone());
        for (delete, _) in gone {
            self.turn.answer(delete.caller, Err(refusal::abandoned(&self.turn.id)));
        }
        let is_wanted = |target: &Target| {
            accepted.iter().any(|(_, request)| request.machines.iter().any(|it| it.uid == target.uid))
        };
        let targets = targets.into_iter().filter(is_wanted).collect();
        remove(self.turn, targets, &mut self.fates).await;
        for (delete, request) in accepted {
            self.replicas += request.replicas;
            self.instances += request.instances;
            let of_request =
                || self.fates.iter().filter(|(target, _)| request.machines.iter().any(|it| it.uid == target.uid));
            let awaits_smaller_size = of_request().any(|(_, fate)| matches!(fate, Fate::Removed));
            let may_be_gone = |fate: &Fate| fate.is_removed() || matches!(fate, Fate::MaybeRemoved);
            let is_part = request.lowers_by_itself() || of_request().any(|(_, fate)| may_be_gone(fate));
            let error = of_request().find_map(|(target, fate)| self.error_of(target, fate));
            let error = error.map(|error| if is_part { error.of_part() } else { error });
            self.waiting.push(Waiting { delete, request, awaits_smaller_size, error });
        }
    }

    fn knows(&self, uid: &Uid) -> bool {
        self.fates.iter().any(|(target, _)| target.uid == *uid)
    }

    /// Resolves the Nodes of deletes, and answers those for which that fails. An error of the group comes before any
    /// error of its Nodes.
    fn resolve(&self, deletes: Vec<Delete>) -> Vec<(Delete, Request)> {
        let turn = self.turn;
        let mut requests = Vec::new();
        for delete in deletes {
            match turn.view().and_then(|_| request::request_of(turn, &delete.nodes)) {
                Ok(request) => {
                    if request.instances > 0 {
                        tracing::warn!(group = %turn.id, "the MachinePool has no Machines for these Nodes: its infrastructure provider chooses which instance goes");
                    }
                    requests.push((delete, request));
                }
                Err(error) => turn.answer(delete.caller, Err(error)),
            }
        }
        requests
    }

    /// Counts the Machines of the group, if a request names replicas or instances without one.
    async fn count(&self, requests: &[(Delete, Request)]) -> Result<Option<GroupMachines>, CallError> {
        let counts = requests.iter().any(|(_, request)| request.lowers_by_itself());
        if counts { read::machines(self.turn).await.map(Some) } else { Ok(None) }
    }

    /// Decides on requests in the order of their arrival, each as a whole, and answers those that are refused.
    fn decide(&self, view: &ScaleView, requests: Vec<(Delete, Request)>) -> Decided {
        let size = view.version.replicas - as_i32(still_to_lower(&self.fates).count() + self.replicas + self.instances);
        let mut decided = Decided { accepted: Vec::new(), targets: Vec::new(), size, below: Vec::new() };
        for (delete, mut request) in requests {
            let is_known = |target: &Target| self.knows(&target.uid) || decided.targets.contains(target);
            let new: Vec<_> = request.machines.iter().filter(|it| !is_known(it)).cloned().collect();
            match self.decide_one(view, decided.size, &mut request, &new) {
                Ok(to) => {
                    decided.size = to;
                    decided.targets.extend(new);
                    decided.accepted.push((delete, request));
                }
                Err(Refused::BelowMin(error)) => decided.below.push((delete, request, error)),
                Err(Refused::For(error)) => self.turn.answer(delete.caller, Err(error)),
            }
        }
        decided
    }

    /// Decides anew on the requests that would pass the minimum, without those of their Machines that are gone. Where one
    /// still would, a Machine is replaced, or it is refused.
    async fn replace_or_accept(&self, view: &ScaleView, decided: &mut Decided) {
        let turn = self.turn;
        for (delete, mut request, below) in std::mem::take(&mut decided.below) {
            let result = match self.decide_below(view, decided, &mut request, below).await {
                Ok((to, there)) => {
                    decided.size = to;
                    decided.targets.extend(there);
                    decided.accepted.push((delete, request));
                    continue;
                }
                // A replacement is the first write of its request.
                Err(Refused::BelowMin(_)) if delete.caller.is_gone() => Err(refusal::abandoned(&turn.id)),
                Err(Refused::BelowMin(below)) => replace::replace(turn, &request, below).await,
                Err(Refused::For(error)) => Err(error),
            };
            turn.answer(delete.caller, result);
        }
    }

    /// Decides on a request that would pass the minimum with the Machines that no other request of the batch names.
    /// A watch that lags shows Machines that another replica of this program has deleted already, so they are read. Returns
    /// the size without the Machines that are still there, and these.
    async fn decide_below(
        &self,
        view: &ScaleView,
        decided: &Decided,
        request: &mut Request,
        below: SizeError,
    ) -> Result<(i32, Vec<Target>), Refused> {
        let turn = self.turn;
        let is_known = |target: &Target| self.knows(&target.uid) || decided.targets.contains(target);
        let (known, new): (Vec<_>, Vec<_>) = std::mem::take(&mut request.machines).into_iter().partition(is_known);
        let there =
            read::still_there(turn, &new).await.map_err(|error| Refused::For(refusal::failed(&turn.id, &error)))?;
        request.machines.clone_from(&there);
        if there.len() == new.len() {
            return Err(Refused::BelowMin(below));
        }
        let to = self.decide_one(view, decided.size, request, &there)?;
        request.machines.extend(known);
        Ok((to, there))
    }

    /// Decides on one request, and returns the size without its Machines. `new` are those that no other request of the
    /// batch names. Of the replicas that it names, only those that are missing stay in it.
    fn decide_one(&self, view: &ScaleView, from: i32, request: &mut Request, new: &[Target]) -> Result<i32, Refused> {
        let id = &self.turn.id;
        if request.replicas > 0 {
            let listed = self.listed.as_ref();
            let leaves =
                |uid: &Uid| self.knows(uid) || request.machines.iter().chain(new).any(|target| target.uid == *uid);
            let missing = listed.map_or(0, |listed| listed.placeholders(from - as_i32(new.len()), leaves));
            let left = request.replicas.min(missing);
            if request.replicas - left > request.given_up {
                return Err(Refused::For(refusal::have_machines(id, request.replicas, left)));
            }
            request.replicas = left;
        }
        if request.instances > 0 && self.listed.as_ref().is_some_and(GroupMachines::has_any) {
            return Err(Refused::For(refusal::is_of_machines(id)));
        }
        let count = new.len() + request.replicas + request.instances;
        if count == 0 {
            return Ok(from);
        }
        if let Some(rollout) = &view.rollout {
            return Err(Refused::For(ScaleError::FailedPrecondition(refusal::rolling_out(id, rollout))));
        }
        if let Some(oldest) = &view.shrinks_first
            && (request.replicas > 0 || new.iter().any(|target| target.owner.as_ref() != Some(oldest)))
        {
            return Err(Refused::For(refusal::not_the_oldest(id, oldest)));
        }
        size::delete(from, count, view.bounds).map_err(Refused::BelowMin)
    }

    /// Records Machines that can't be deleted now, or Cluster Autoscaler would name those with an error in every loop.
    fn record_failed<'b>(&self, targets: impl IntoIterator<Item = &'b Target>) {
        for target in targets.into_iter().filter(|target| target.never_joined) {
            self.turn.index().record_failed_delete(&target.key, &target.uid);
        }
    }

    fn refuse(&self, requests: Vec<(Delete, Request)>, error: &ScaleError) {
        for (delete, _) in requests {
            self.turn.answer(delete.caller, Err(error.clone()));
        }
    }

    /// Returns the error for a Machine that wasn't removed.
    fn error_of(&self, target: &Target, fate: &Fate) -> Option<ScaleError> {
        let id = &self.turn.id;
        match fate {
            Fate::Removed | Fate::Lowered | Fate::RemovedByOthers => None,
            Fate::NotLowered(error) => Some(error.clone()),
            Fate::MaybeRemoved => Some(refusal::delete_unknown(id, &target.key.name)),
            Fate::HasJoined => Some(refusal::has_joined(id, &target.key.name)),
            Fate::Stays(error) => Some(refusal::not_deleted(id, &target.key.name, error)),
        }
    }

    /// Lowers the size by all that the batch has removed, and then by the replicas without a Machine.
    async fn lower(&mut self) {
        let turn = self.turn;
        let removed: Vec<_> = still_to_lower(&self.fates).cloned().collect();
        if !removed.is_empty() {
            if let Err(error) = lower_by(turn, &removed).await {
                self.waiting
                    .iter_mut()
                    .filter(|it| it.awaits_smaller_size)
                    .for_each(|it| it.error = Some(error.clone()));
            }
            self.listed = None;
        }
        let (replicas, instances) = (self.replicas, self.instances);
        if replicas + instances == 0 {
            return;
        }
        let lowered = match turn.view() {
            Ok(view) => {
                let leaving = self.fates.iter().filter(|(_, fate)| fate.is_removed());
                let leaving = &leaving.map(|(target, _)| target.uid.clone()).collect();
                let (listed, min) = (self.listed.take(), view.bounds.min);
                let aim = Aim::LowerByMissing { replicas, instances, leaving, listed, min };
                Resize::new(turn, None).write(view.version, aim).await
            }
            Err(why) => Err(why),
        };
        for it in self.waiting.iter_mut().filter(|it| it.request.lowers_by_itself()) {
            match &lowered {
                Ok(_) if it.request.instances > 0 => {
                    turn.report(EventContent::chosen_by_provider(it.request.instances));
                }
                Ok(_) => {}
                Err(error) if it.awaits_smaller_size => it.error = Some(error.clone().of_part()),
                Err(error) => it.error = Some(error.clone()),
            }
        }
    }

    fn answer(self) {
        let (turn, id) = (self.turn, &self.turn.id);
        for Waiting { delete, error, .. } in self.waiting {
            if error.is_none() {
                let leaving = delete.nodes.iter().map(|node| DeletionTarget::named(node.text()));
                turn.shared.accepted_deletions.accept(id, leaving);
            }
            turn.answer(delete.caller, error.map_or(Ok(()), Err));
        }
    }
}

/// The reason why a request is refused.
enum Refused {
    BelowMin(SizeError),
    For(ScaleError),
}

/// A size that can't be written as decided.
pub(super) enum TryAgain {
    /// The group has another size by now: decide again.
    Anew,
    /// It can't be written.
    No(ScaleError),
}

/// Tries a size without writing it, before something is done that can't be undone: rights, policies and webhooks judge
/// a dry run, and a size that somebody else has written meanwhile fails its test.
pub(super) async fn dry_run_size(turn: &Turn, seen: &GroupVersion, to: i32) -> Result<(), TryAgain> {
    let id = &turn.id;
    let (mut attempts, writer) = (turn.attempts(), SizeWriter::draw());
    loop {
        let call = turn.api().write_size(id, seen, to, &writer, SizeCall::DryRun);
        let error = match turn.write(Write::DryRun, call).await {
            Ok(_) => return Ok(()),
            // A webhook without support for dry runs can't be asked.
            Err(CallError::Refused(why)) if why.contains("does not support dry run") => return Ok(()),
            Err(error) => error,
        };
        if matches!(error, CallError::Refused(_) | CallError::Forbidden(_)) {
            turn.index().hold(id, Some(Hold::DeletesRefused(error.to_string())));
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if !attempts.again(&error).await {
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if error.is_not_now() || matches!(error, CallError::MaybeDone(..)) {
            continue;
        }
        match turn.api().read_group(id).await {
            Ok(now) if now.version.replicas == seen.replicas && now.version.uid == seen.uid => {
                if attempts.made() > 2 {
                    return Err(TryAgain::No(refusal::rejected(id, to, &error)));
                }
            }
            Ok(now) => {
                turn.index().set_known_version(&turn.id, now.version.clone());
                return Err(TryAgain::Anew);
            }
            Err(error) => return Err(TryAgain::No(refusal::failed(id, &error))),
        }
    }
}

/// Removes Machines side by side: deletes them, or marks them where a MachineSet doesn't count Machines that are being
/// deleted. While some of them are slow to go, the size is lowered here for those that are removed. For the last ones the
/// calling function lowers it.
pub(super) async fn remove(turn: &Turn, targets: Vec<Target>, fates: &mut Vec<(Target, Fate)>) {
    let (is_marked, dry_run_first) = (mark::annotates_instead(turn), turn.index().are_deletes_refused(&turn.id));
    let first = fates.len();
    let all = Mutex::new(&mut *fates);
    {
        let mut removing = pin!(stream::iter(targets).for_each_concurrent(SIDE_BY_SIDE, async |target| {
            let fate = if is_marked {
                mark::mark(turn, &target).await
            } else {
                delete_one(turn, &target, dry_run_first).await
            };
            match &fate {
                Fate::Removed => turn.shared.accepted_deletions.deleted(&turn.id, &target.uid),
                Fate::Stays(error) if error.was_sent() => turn.index().record_failed_delete(&target.key, &target.uid),
                Fate::Lowered
                | Fate::NotLowered(_)
                | Fate::RemovedByOthers
                | Fate::MaybeRemoved
                | Fate::HasJoined
                | Fate::Stays(_) => {}
            }
            all.lock().push((target, fate));
        }));
        while timeout(SLOW, removing.as_mut()).await.is_err() {
            let done: Vec<_> = still_to_lower(&all.lock()).cloned().collect();
            if done.is_empty() {
                continue;
            }
            let (lowered, is_last) = match future::select(removing.as_mut(), pin!(lower_by(turn, &done))).await {
                Either::Left(((), lowering)) => (lowering.await, true),
                Either::Right((lowered, _)) => (lowered, false),
            };
            for (_, fate) in all.lock().iter_mut().filter(|(target, _)| done.contains(target)) {
                *fate = lowered.clone().map_or_else(Fate::NotLowered, |()| Fate::Lowered);
            }
            if is_last {
                break;
            }
        }
    }
    let refused = fates[first..].iter().find_map(|(_, fate)| match fate {
        Fate::Stays(error @ (CallError::Refused(_) | CallError::Forbidden(_))) => Some(error.to_string()),
        _ => None,
    });
    match refused {
        Some(why) => turn.index().hold(&turn.id, Some(Hold::DeletesRefused(why))),
        None if dry_run_first && fates[first..].iter().any(|(_, fate)| fate.is_removed()) => {
            turn.index().hold(&turn.id, None);
        }
        None => {}
    }
}

/// Iterates over the Machines that were deleted or marked, for which the size isn't lowered yet.
fn still_to_lower(fates: &[(Target, Fate)]) -> impl Iterator<Item = &Target> {
    fates.iter().filter_map(|(target, fate)| matches!(fate, Fate::Removed).then_some(target))
}

/// Deletes a Machine, as the version on which that was decided. `dry_run_first` lets a dry run go first.
pub(super) async fn delete_one(turn: &Turn, target: &Target, dry_run_first: bool) -> Fate {
    let Target { key, uid, never_joined, .. } = target;
    let (mut version, mut attempts, mut is_unanswered) = (target.version.clone(), turn.attempts(), false);
    let gone = |is_unanswered: bool| if is_unanswered { Fate::MaybeRemoved } else { Fate::RemovedByOthers };
    let mut dry_run_first = dry_run_first;
    loop {
        if *never_joined && turn.index().has_node(key, uid) {
            return if is_unanswered { Fate::MaybeRemoved } else { Fate::HasJoined };
        }
        let write = if dry_run_first { Write::DryRun } else { Write::Delete };
        let error = match turn.write(write, turn.api().delete_machine(key, uid, &version, dry_run_first)).await {
            Ok(()) if dry_run_first => {
                dry_run_first = false;
                continue;
            }
            Ok(()) => return Fate::Removed,
            Err(CallError::Missing(_)) => return gone(is_unanswered),
            Err(error) => error,
        };
        is_unanswered |= !dry_run_first && matches!(error, CallError::MaybeDone(..));
        let again = attempts.again(&error).await;
        // A Cluster Autoscaler that has given up the call has made the Node schedulable again.
        if !is_unanswered && (!again || turn.has_no_caller()) {
            return Fate::Stays(error);
        }
        if again && error.is_not_now() {
            continue;
        }
        // It has changed, or the answer was lost.
        match turn.api().read_machine(key, uid).await {
            Ok(None) => return gone(is_unanswered),
            Ok(Some(machine)) if machine.deleting => return gone(is_unanswered),
            Ok(Some(machine)) if *never_joined && has_joined(turn, target, &machine) => return Fate::HasJoined,
            Ok(Some(_)) if !again => return if is_unanswered { Fate::MaybeRemoved } else { Fate::Stays(error) },
            Ok(Some(machine)) => version = machine.version,
            Err(read) if attempts.again(&read).await => {}
            Err(read) => return if is_unanswered { Fate::MaybeRemoved } else { Fate::Stays(read) },
        }
    }
}

/// Returns true if a Machine has a Node, by the nodeRef that was read or by a Node of the workload cluster.
pub(super) fn has_joined(turn: &Turn, target: &Target, machine: &super::api::MachineDetails) -> bool {
    machine.node_name.is_some() || turn.index().knows_node_of(&target.key, machine.provider_id.as_ref())
}

/// Lowers the size by Machines that were deleted or marked, as far as the minimum lets it.
pub(super) async fn lower_by(turn: &Turn, removed: &[Target]) -> Result<(), ScaleError> {
    let ScaleView { version, bounds, .. } = match turn.view() {
        Ok(view) => view,
        Err(why) => return Err(not_lowered(turn, removed, why).await),
    };
    read::until_seen(turn, removed).await;
    let names: Vec<ArcStr> = removed.iter().map(|target| target.key.name.clone()).collect();
    let by = as_i32(removed.len());
    let error = match Resize::after(turn, &names).write(version, Aim::Lower { by, min: bounds.min }).await {
        Ok(written) => match by - written.map_or(0, |Written { from, to, .. }| from - to) {
            0 => return Ok(()),
            spared => refusal::below_min(&turn.id, spared, bounds.min),
        },
        Err(error) => error,
    };
    Err(not_lowered(turn, removed, error).await)
}

/// Returns the error of a request for which the size couldn't be lowered. Marks are taken back; a Machine that was
/// deleted is replaced.
async fn not_lowered(turn: &Turn, removed: &[Target], error: ScaleError) -> ScaleError {
    if mark::annotates_instead(turn) {
        mark::unmark(turn, removed).await;
        error
    } else {
        refusal::will_be_replaced(removed.len(), &error)
    }
}
