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

use std::time::Duration;

use index::ScaleView;
use rules::{SizeError, capi::Uid, size};
use tokio::time::Instant;

use super::{
    accepted::DeletionTarget,
    error::ScaleError,
    events::EventContent,
    queue::Delete,
    read::{self, GroupMachines},
    refusal,
    removal::{self, Fate, still_to_lower},
    replace,
    request::{self, Request, Target},
    size_write::{Aim, SizeWrite, TryAgain, as_i32, dry_run_size},
    turn::Turn,
};

/// The number of times that a batch is decided, if somebody else keeps writing the size meanwhile.
const MOST_ROUNDS: usize = 6;
/// The time for which deletes may join a batch; later ones wait for the next turn.
const OPEN_FOR: Duration = Duration::from_millis(500);

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
pub(super) async fn run_batch(turn: &Turn, deletes: Vec<Delete>) {
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
        let (mut requests, mut rounds) = (self.requests_of(deletes), 0);
        let (accepted, targets) = loop {
            rounds += 1;
            self.listed = match self.count(&requests).await {
                Ok(listed) => listed,
                Err(error) => {
                    let counted: Vec<_> =
                        requests.extract_if(.., |(_, request)| request.has_some_without_machine()).collect();
                    self.record_failed(counted.iter().flat_map(|(_, request)| &request.machines));
                    self.refuse(counted, &error);
                    None
                }
            };
            let view = match self.turn.view() {
                Ok(view) => view,
                Err(error) => return self.refuse(requests, &error),
            };
            let mut decided = self.decide(&view, std::mem::take(&mut requests));
            self.settle_below_min(&view, &mut decided).await;
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
        // From here on the command goes on without its callers, but a DELETE that failed isn't tried again without them.
        let (accepted, gone): (Vec<_>, Vec<_>) = accepted.into_iter().partition(|(delete, _)| !delete.caller.is_gone());
        for (delete, _) in gone {
            self.turn.answer(delete.caller, Err(refusal::abandoned(&self.turn.id)));
        }
        let is_wanted = |target: &Target| {
            accepted.iter().any(|(_, request)| request.machines.iter().any(|it| it.uid == target.uid))
        };
        let targets = targets.into_iter().filter(is_wanted).collect();
        removal::remove(self.turn, targets, &mut self.fates).await;
        for (delete, request) in accepted {
            self.replicas += request.replicas;
            self.instances += request.instances;
            let of_request =
                || self.fates.iter().filter(|(target, _)| request.machines.iter().any(|it| it.uid == target.uid));
            let awaits_smaller_size = of_request().any(|(_, fate)| matches!(fate, Fate::Removed));
            let may_be_gone = |fate: &Fate| fate.is_removed() || matches!(fate, Fate::MaybeRemoved);
            let is_part = request.has_some_without_machine() || of_request().any(|(_, fate)| may_be_gone(fate));
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
    fn requests_of(&self, deletes: Vec<Delete>) -> Vec<(Delete, Request)> {
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
    async fn count(&self, requests: &[(Delete, Request)]) -> Result<Option<GroupMachines>, ScaleError> {
        let counts = requests.iter().any(|(_, request)| request.has_some_without_machine());
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
                Err(NotAccepted::BelowMin(error)) => decided.below.push((delete, request, error)),
                Err(NotAccepted::For(error)) => self.turn.answer(delete.caller, Err(error)),
            }
        }
        decided
    }

    /// Decides anew on the requests that would pass the minimum, without those of their Machines that are gone. Where one
    /// still would, its Machine is deleted here, to be replaced, or it is refused.
    async fn settle_below_min(&self, view: &ScaleView, decided: &mut Decided) {
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
                Err(NotAccepted::BelowMin(_)) if delete.caller.is_gone() => Err(refusal::abandoned(&turn.id)),
                Err(NotAccepted::BelowMin(below)) => replace::replace(turn, &request, below).await,
                Err(NotAccepted::For(error)) => Err(error),
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
    ) -> Result<(i32, Vec<Target>), NotAccepted> {
        let turn = self.turn;
        let is_known = |target: &Target| self.knows(&target.uid) || decided.targets.contains(target);
        let (known, new): (Vec<_>, Vec<_>) = std::mem::take(&mut request.machines).into_iter().partition(is_known);
        let there =
            read::still_there(turn, &new).await.map_err(|error| NotAccepted::For(refusal::failed(&turn.id, &error)))?;
        request.machines.clone_from(&there);
        if there.len() == new.len() {
            return Err(NotAccepted::BelowMin(below));
        }
        let to = self.decide_one(view, decided.size, request, &there)?;
        request.machines.extend(known);
        Ok((to, there))
    }

    /// Decides on one request, and returns the size without its Machines. `new` are those that no other request of the
    /// batch names. Of the replicas that it names, only those that are missing stay in it.
    fn decide_one(
        &self,
        view: &ScaleView,
        from: i32,
        request: &mut Request,
        new: &[Target],
    ) -> Result<i32, NotAccepted> {
        let id = &self.turn.id;
        if request.replicas > 0 {
            let listed = self.listed.as_ref();
            let leaves =
                |uid: &Uid| self.knows(uid) || request.machines.iter().chain(new).any(|target| target.uid == *uid);
            let missing = listed.map_or(0, |listed| listed.placeholders(from - as_i32(new.len()), leaves));
            let left = request.replicas.min(missing);
            if request.replicas - left > request.given_up {
                return Err(NotAccepted::For(refusal::have_machines(id, request.replicas, left)));
            }
            request.replicas = left;
        }
        if request.instances > 0 && self.listed.as_ref().is_some_and(GroupMachines::has_any) {
            return Err(NotAccepted::For(refusal::is_of_machines(id)));
        }
        let count = new.len() + request.replicas + request.instances;
        if count == 0 {
            return Ok(from);
        }
        request::check_rollout(id, view, new, request.replicas).map_err(NotAccepted::For)?;
        size::after_delete(from, count, view.bounds).map_err(NotAccepted::BelowMin)
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

    /// Returns the error that the fate of a Machine gives its request.
    fn error_of(&self, target: &Target, fate: &Fate) -> Option<ScaleError> {
        let id = &self.turn.id;
        match fate {
            Fate::Removed | Fate::RemovedAndLowered | Fate::RemovedByOthers => None,
            Fate::RemovedNotLowered(error) => Some(error.clone()),
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
            if let Err(error) = removal::lower_by(turn, &removed).await {
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
                SizeWrite::new(turn, None).write(view.version, aim).await
            }
            Err(why) => Err(why),
        };
        for it in self.waiting.iter_mut().filter(|it| it.request.has_some_without_machine()) {
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
enum NotAccepted {
    BelowMin(SizeError),
    For(ScaleError),
}
