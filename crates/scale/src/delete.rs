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
//! a DELETE is slow, the size is lowered for the others before: MachineSets replace a Machine as soon as it is gone.

use std::{pin::pin, time::Duration};

use arcstr::ArcStr;
use futures::{
    StreamExt as _,
    future::{self, Either},
    stream,
};
use parking_lot::Mutex;
use rules::capi::Uid;
use rules::{
    SizeError, size,
    writing::{CallError, GroupVersion, SizeWriter},
};
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
    work::Work,
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
    Ours,
    /// This command has deleted or marked it, and has lowered the size for it.
    Lowered,
    /// This command has deleted or marked it, and couldn't lower the size for it.
    NotLowered(ScaleError),
    /// It is gone, or being deleted by somebody else: whoever that is lowers the size, or it is replaced.
    Going,
    /// It may be this command that has deleted it: the size isn't lowered, and it may be replaced.
    Unknown,
    /// It was given up as one that never joined, and has a Node by now.
    HasJoined,
    /// It stays: the API server refuses to delete it, or can't be reached.
    Stays(CallError),
}

impl Fate {
    /// Returns true if this command has deleted or marked the Machine.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self, Self::Ours | Self::Lowered | Self::NotLowered(_))
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
    work: &'a Work,
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
pub(super) async fn delete(work: &Work, deletes: Vec<Delete>) {
    let mut batch = Batch { work, waiting: Vec::new(), fates: Vec::new(), replicas: 0, instances: 0, listed: None };
    let (begun, mut deletes) = (Instant::now(), deletes);
    while !deletes.is_empty() {
        batch.carry_out(deletes).await;
        let is_open = begun.elapsed() < OPEN_FOR && still_to_lower(&batch.fates).next().is_some();
        deletes = if is_open { work.shared.lanes.more_deletes(&work.id) } else { Vec::new() };
        work.note_callers(deletes.iter().map(|delete| &delete.caller));
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
                    self.refuse(counted, &refusal::failed(&self.work.id, &error));
                    None
                }
            };
            let view = match self.work.view() {
                Ok(view) => view,
                Err(error) => return self.refuse(requests, &error),
            };
            let mut decided = self.decide(&view, std::mem::take(&mut requests));
            self.replace_or_accept(&view, &mut decided).await;
            let Decided { accepted, targets, size, .. } = decided;
            if targets.is_empty() {
                break (accepted, targets);
            }
            match dry_run_size(self.work, &view.version, size).await {
                Ok(()) => break (accepted, targets),
                Err(TryAgain::Anew) if rounds < MOST_ROUNDS => requests = accepted,
                Err(TryAgain::Anew) => return self.refuse(accepted, &refusal::changed(&self.work.id)),
                Err(TryAgain::No(error)) => {
                    self.record_failed(&targets);
                    return self.refuse(accepted, &error);
                }
            }
        };
        // From here on the command runs to its end without its callers.
        let (accepted, gone): (Vec<_>, Vec<_>) = accepted.into_iter().partition(|(delete, _)| !delete.caller.is_gone());
        for (delete, _) in gone {
            self.work.answer(delete.caller, Err(refusal::abandoned(&self.work.id)));
        }
        let is_wanted = |target: &Target| {
            accepted.iter().any(|(_, request)| request.machines.iter().any(|it| it.uid == target.uid))
        };
        let targets = targets.into_iter().filter(is_wanted).collect();
        remove(self.work, targets, &mut self.fates).await;
        for (delete, request) in accepted {
            self.replicas += request.replicas;
            self.instances += request.instances;
            let of_request =
                || self.fates.iter().filter(|(target, _)| request.machines.iter().any(|it| it.uid == target.uid));
            let awaits_smaller_size = of_request().any(|(_, fate)| matches!(fate, Fate::Ours));
            let may_be_gone = |fate: &Fate| fate.is_removed() || matches!(fate, Fate::Unknown);
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
        let work = self.work;
        let mut requests = Vec::new();
        for delete in deletes {
            match work.view().and_then(|_| request::request_of(work, &delete.nodes)) {
                Ok(request) => {
                    if request.instances > 0 {
                        tracing::warn!(group = %work.id, "the MachinePool has no Machines for these Nodes: its infrastructure provider chooses which instance goes");
                    }
                    requests.push((delete, request));
                }
                Err(error) => work.answer(delete.caller, Err(error)),
            }
        }
        requests
    }

    /// Counts the Machines of the group, if a request names replicas or instances without one.
    async fn count(&self, requests: &[(Delete, Request)]) -> Result<Option<GroupMachines>, CallError> {
        let counts = requests.iter().any(|(_, request)| request.lowers_by_itself());
        if counts { read::machines(self.work).await.map(Some) } else { Ok(None) }
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
                Err(Refused::For(error)) => self.work.answer(delete.caller, Err(error)),
            }
        }
        decided
    }

    /// Decides anew on the requests that would pass the minimum, without those of their Machines that are gone. Where one
    /// still would, a Machine is replaced, or it is refused.
    async fn replace_or_accept(&self, view: &ScaleView, decided: &mut Decided) {
        let work = self.work;
        for (delete, mut request, below) in std::mem::take(&mut decided.below) {
            let result = match self.decide_below(view, decided, &mut request, below).await {
                Ok((to, there)) => {
                    decided.size = to;
                    decided.targets.extend(there);
                    decided.accepted.push((delete, request));
                    continue;
                }
                // A replacement is the first write of its request.
                Err(Refused::BelowMin(_)) if delete.caller.is_gone() => Err(refusal::abandoned(&work.id)),
                Err(Refused::BelowMin(below)) => replace::replace(work, &request, below).await,
                Err(Refused::For(error)) => Err(error),
            };
            work.answer(delete.caller, result);
        }
    }

    /// Decides on a request that would pass the minimum with those of its Machines that aren't among the targets of others.
    /// A watch that lags shows Machines that another replica of this program has deleted already, so they are read. Returns
    /// the size without the Machines that are still there, and these.
    async fn decide_below(
        &self,
        view: &ScaleView,
        decided: &Decided,
        request: &mut Request,
        below: SizeError,
    ) -> Result<(i32, Vec<Target>), Refused> {
        let work = self.work;
        let is_known = |target: &Target| self.knows(&target.uid) || decided.targets.contains(target);
        let (known, new): (Vec<_>, Vec<_>) = std::mem::take(&mut request.machines).into_iter().partition(is_known);
        let there =
            read::still_there(work, &new).await.map_err(|error| Refused::For(refusal::failed(&work.id, &error)))?;
        request.machines.clone_from(&there);
        if there.len() == new.len() {
            return Err(Refused::BelowMin(below));
        }
        let to = self.decide_one(view, decided.size, request, &there)?;
        request.machines.extend(known);
        Ok((to, there))
    }

    /// Decides on one request, of whose Machines these are new to the batch. Returns the size without them. Of the
    /// replicas that it names, only those that are missing stay in it.
    fn decide_one(&self, view: &ScaleView, from: i32, request: &mut Request, new: &[Target]) -> Result<i32, Refused> {
        let id = &self.work.id;
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
            self.work.index().record_failed_delete(&target.key, &target.uid);
        }
    }

    fn refuse(&self, requests: Vec<(Delete, Request)>, error: &ScaleError) {
        for (delete, _) in requests {
            self.work.answer(delete.caller, Err(error.clone()));
        }
    }

    /// Returns the error for a Machine that wasn't removed.
    fn error_of(&self, target: &Target, fate: &Fate) -> Option<ScaleError> {
        let id = &self.work.id;
        match fate {
            Fate::Ours | Fate::Lowered | Fate::Going => None,
            Fate::NotLowered(error) => Some(error.clone()),
            Fate::Unknown => Some(refusal::delete_unknown(id, &target.key.name)),
            Fate::HasJoined => Some(refusal::has_joined(id, &target.key.name)),
            Fate::Stays(error) => Some(refusal::not_deleted(id, &target.key.name, error)),
        }
    }

    /// Lowers the size by all that the batch has removed, and then by the replicas without a Machine.
    async fn lower(&mut self) {
        let work = self.work;
        let removed: Vec<_> = still_to_lower(&self.fates).cloned().collect();
        if !removed.is_empty() {
            if let Err(error) = lower_by(work, &removed).await {
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
        let lowered = match work.view() {
            Ok(view) => {
                let leaving = self.fates.iter().filter(|(_, fate)| fate.is_removed());
                let leaving = &leaving.map(|(target, _)| target.uid.clone()).collect();
                let (listed, min) = (self.listed.take(), view.bounds.min);
                let aim = Aim::GiveUp { replicas, instances, leaving, listed, min };
                Resize::new(work, None).write(view.version, aim).await
            }
            Err(why) => Err(why),
        };
        for it in self.waiting.iter_mut().filter(|it| it.request.lowers_by_itself()) {
            match &lowered {
                Ok(_) if it.request.instances > 0 => {
                    work.report(EventContent::chosen_by_provider(it.request.instances));
                }
                Ok(_) => {}
                Err(error) if it.awaits_smaller_size => it.error = Some(error.clone().of_part()),
                Err(error) => it.error = Some(error.clone()),
            }
        }
    }

    fn answer(self) {
        let (work, id) = (self.work, &self.work.id);
        for Waiting { delete, error, .. } in self.waiting {
            if error.is_none() {
                let leaving = delete.nodes.iter().map(|node| DeletionTarget::named(node.text()));
                work.shared.accepted_deletions.accept(id, leaving);
            }
            work.answer(delete.caller, error.map_or(Ok(()), Err));
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
pub(super) async fn dry_run_size(work: &Work, seen: &GroupVersion, to: i32) -> Result<(), TryAgain> {
    let id = &work.id;
    let (mut attempts, writer) = (work.attempts(), SizeWriter::draw());
    loop {
        let call = work.api().write_size(id, seen, to, &writer, SizeCall::DryRun);
        let error = match work.write(Write::DryRun, call).await {
            Ok(_) => return Ok(()),
            // A webhook without support for dry runs can't be asked.
            Err(CallError::Refused(why)) if why.contains("does not support dry run") => return Ok(()),
            Err(error) => error,
        };
        if matches!(error, CallError::Refused(_) | CallError::Forbidden(_)) {
            work.index().hold(id, Some(Hold::DeletesRefused(error.to_string())));
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if !attempts.again(&error).await {
            return Err(TryAgain::No(refusal::failed(id, &error)));
        }
        if error.is_not_now() || matches!(error, CallError::Unknown(..)) {
            continue;
        }
        match work.api().read_group(id).await {
            Ok(now) if now.version.replicas == seen.replicas && now.version.uid == seen.uid => {
                if attempts.made() > 2 {
                    return Err(TryAgain::No(refusal::rejected(id, to, &error)));
                }
            }
            Ok(now) => {
                work.store_version(&now.version);
                return Err(TryAgain::Anew);
            }
            Err(error) => return Err(TryAgain::No(refusal::failed(id, &error))),
        }
    }
}

/// Removes Machines side by side: deletes them, or marks them where a MachineSet doesn't count Machines that are being
/// deleted. While some of them are slow to go, the size is lowered for those that are removed; for the last ones that is
/// left to the caller.
pub(super) async fn remove(work: &Work, targets: Vec<Target>, fates: &mut Vec<(Target, Fate)>) {
    let (is_marked, dry_run_first) = (mark::is_way_of(work), work.index().are_deletes_refused(&work.id));
    let first = fates.len();
    let all = Mutex::new(&mut *fates);
    {
        let mut removing = pin!(stream::iter(targets).for_each_concurrent(SIDE_BY_SIDE, async |target| {
            let fate = if is_marked {
                mark::mark(work, &target).await
            } else {
                delete_one(work, &target, dry_run_first).await
            };
            match &fate {
                Fate::Ours => work.shared.accepted_deletions.deleted(&work.id, &target.uid),
                Fate::Stays(error) if error.was_sent() => work.index().record_failed_delete(&target.key, &target.uid),
                Fate::Lowered
                | Fate::NotLowered(_)
                | Fate::Going
                | Fate::Unknown
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
            let (lowered, is_last) = match future::select(removing.as_mut(), pin!(lower_by(work, &done))).await {
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
        Some(why) => work.index().hold(&work.id, Some(Hold::DeletesRefused(why))),
        None if dry_run_first && fates[first..].iter().any(|(_, fate)| fate.is_removed()) => {
            work.index().hold(&work.id, None);
        }
        None => {}
    }
}

/// Iterates over the Machines that were deleted or marked, for which the size isn't lowered yet.
fn still_to_lower(fates: &[(Target, Fate)]) -> impl Iterator<Item = &Target> {
    fates.iter().filter_map(|(target, fate)| matches!(fate, Fate::Ours).then_some(target))
}

/// Deletes a Machine, as the version on which that was decided. `dry_run_first` lets a dry run go first.
pub(super) async fn delete_one(work: &Work, target: &Target, dry_run_first: bool) -> Fate {
    let Target { key, uid, never_joined, .. } = target;
    let (mut version, mut attempts, mut is_unanswered) = (target.version.clone(), work.attempts(), false);
    let gone = |is_unanswered: bool| if is_unanswered { Fate::Unknown } else { Fate::Going };
    let mut dry_run_first = dry_run_first;
    loop {
        if *never_joined && work.index().has_node(key, uid) {
            return if is_unanswered { Fate::Unknown } else { Fate::HasJoined };
        }
        let write = if dry_run_first { Write::DryRun } else { Write::Delete };
        let error = match work.write(write, work.api().delete_machine(key, uid, &version, dry_run_first)).await {
            Ok(()) if dry_run_first => {
                dry_run_first = false;
                continue;
            }
            Ok(()) => return Fate::Ours,
            Err(CallError::Missing(_)) => return gone(is_unanswered),
            Err(error) => error,
        };
        is_unanswered |= !dry_run_first && matches!(error, CallError::Unknown(..));
        let again = attempts.again(&error).await;
        // Whoever has left has made the Node schedulable again.
        if !is_unanswered && (!again || work.has_no_caller()) {
            return Fate::Stays(error);
        }
        if again && error.is_not_now() {
            continue;
        }
        // It has changed, or the answer was lost.
        match work.api().read_machine(key, uid).await {
            Ok(None) => return gone(is_unanswered),
            Ok(Some(machine)) if machine.deleting => return gone(is_unanswered),
            Ok(Some(machine)) if *never_joined && has_joined(work, target, &machine) => return Fate::HasJoined,
            Ok(Some(_)) if !again => return if is_unanswered { Fate::Unknown } else { Fate::Stays(error) },
            Ok(Some(machine)) => version = machine.version,
            Err(read) if attempts.again(&read).await => {}
            Err(read) => return if is_unanswered { Fate::Unknown } else { Fate::Stays(read) },
        }
    }
}

/// Returns true if a Machine has a Node, by the nodeRef that was read or by a Node of the workload cluster.
pub(super) fn has_joined(work: &Work, target: &Target, machine: &super::api::MachineDetails) -> bool {
    machine.node_name.is_some() || work.index().knows_node_of(&target.key, machine.provider_id.as_ref())
}

/// Lowers the size by Machines that were deleted or marked, as far as the minimum lets it.
pub(super) async fn lower_by(work: &Work, removed: &[Target]) -> Result<(), ScaleError> {
    let ScaleView { version, bounds, .. } = match work.view() {
        Ok(view) => view,
        Err(why) => return Err(not_lowered(work, removed, why).await),
    };
    read::until_seen(work, removed).await;
    let names: Vec<ArcStr> = removed.iter().map(|target| target.key.name.clone()).collect();
    let by = as_i32(removed.len());
    let error = match Resize::after(work, &names).write(version, Aim::Lower { by, min: bounds.min }).await {
        Ok(written) => match by - written.map_or(0, |Written { from, to, .. }| from - to) {
            0 => return Ok(()),
            spared => refusal::below_min(&work.id, spared, bounds.min),
        },
        Err(error) => error,
    };
    Err(not_lowered(work, removed, error).await)
}

/// Returns the error of a request for which the size couldn't be lowered. Marks are taken back; a Machine that was
/// deleted is replaced.
async fn not_lowered(work: &Work, removed: &[Target], error: ScaleError) -> ScaleError {
    if mark::is_way_of(work) {
        mark::take_back(work, removed).await;
        error
    } else {
        refusal::will_be_replaced(removed.len(), &error)
    }
}
