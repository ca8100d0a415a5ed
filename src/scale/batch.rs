//! A batch of deletes from its acceptance to its end. Deletes that come while its Machines are being marked join it: they
//! are accepted by themselves, and one smaller size is written for all. It must never decide what a delete comes to:
//! [`super::delete`] accepts, [`super::carry`] carries out.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::pin,
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{Fuse, FusedFuture as _},
    stream::FuturesUnordered,
};
use tokio::time::Instant;

use super::{
    Command, ScaleError,
    carry::{Carried, NotLowered},
    delete::{Decided, Sorted},
    events::Happening,
    known::SIDE_BY_SIDE,
    lane::{Caller, Delete},
    mark::{Marked, NotMarked},
    rule::{Life, Listed, Places},
    size::GivingUp,
};
use crate::{
    capi::Uid,
    index::GroupVersion,
    informer::ResourceVersion,
    nodegroup::{Bounds, Phase, deletion_log::Entry},
    traces,
};

/// How long deletes may join a batch; those that come later are the next one. Who was there first waits for them.
const OPEN_FOR: Duration = Duration::from_millis(500);

/// Deletes that are lowered together.
struct Batch {
    /// The version that has in its log what was accepted last.
    version: GroupVersion,
    bounds: Bounds,
    /// Those that need something.
    deletes: Vec<Sorted>,
    /// The group's Machines, where they were counted for what was accepted last.
    listed: Listed,
    /// The versions of Machines that never joined, for their marks to test.
    versions: HashMap<Uid, ResourceVersion>,
    /// True if Machines of it are wanted in the log, so that it goes on without its callers.
    is_logged: bool,
}

impl Batch {
    /// Whether it lowers the size for what has no Machine: what is still left of that is counted when a batch is decided.
    fn has_others(&self) -> bool {
        self.deletes.iter().any(|it| it.others() > 0)
    }

    /// The Machines of each request.
    fn requests(&self) -> Vec<HashSet<Uid>> {
        let uids = |it: &Sorted| it.machines().map(|named| named.uid.clone()).collect();
        self.deletes.iter().map(uids).collect()
    }

    /// The one caller whose deadline ends the write; several can't end one write together.
    fn only_caller(&self) -> Option<&Caller> {
        match self.deletes.as_slice() {
            [one] if !self.is_logged => Some(&one.delete.caller),
            _ => None,
        }
    }
}

impl Command {
    /// Deletes what a batch names, and answers each of its callers.
    pub(super) async fn delete(&self, deletes: Vec<Delete>) {
        let Some(decided) = self.decide(deletes).await else { return };
        let mut batch = Batch {
            version: decided.version.clone(),
            bounds: decided.bounds,
            deletes: Vec::new(),
            listed: Listed::default(),
            versions: HashMap::new(),
            is_logged: false,
        };
        let entries = self.take_in(&mut batch, decided);
        let marked = self.mark_and_take_in(&mut batch, entries).await;
        let requests = batch.requests();
        let uids: HashSet<_> = requests.iter().flatten().cloned().collect();
        let Carried { version: lowered, lowered: count, failures } =
            self.carry_out(batch.version.clone(), &uids, &requests, batch.bounds, marked).await;
        let after = lowered.log().unwrap_or_default();
        let is_logged = |uid: &Uid| after.get(uid).is_some();
        // A request ends by what its own Machines came to.
        let mut standing = Vec::new();
        for (one, uids) in std::mem::take(&mut batch.deletes).into_iter().zip(&requests) {
            let failed = || uids.iter().filter_map(|uid| failures.get(uid));
            let is_pending = |failure: &&NotLowered| matches!(failure, NotLowered::Pending(_));
            match failed().find(is_pending).or_else(|| failed().next()) {
                Some(failure) => {
                    // A refusal ends the whole request, but for what another copy has lowered by then.
                    let goes_on = uids.iter().any(|uid| !failures.contains_key(uid) && is_logged(uid));
                    self.end(one, Err(of_part(failure.error().clone(), goes_on)));
                }
                None => standing.push(one),
            }
        }
        batch.deletes = standing;
        let counted = uids.is_empty().then(|| batch.listed.clone());
        let given_up = self.give_up_others(&batch, &lowered, count, counted).await;
        let log = match self.log_of(&lowered) {
            Ok(log) => log,
            Err(error) => {
                self.answer_all(batch.deletes, &error);
                return;
            }
        };
        for one in batch.deletes {
            let end = self.end_of(&log, &one).await;
            // Replicas without a Machine may have failed alone.
            let end = if one.others() == 0 { end } else { end.and_then(|()| given_up.clone()) };
            let goes_on = one.machines().any(|named| is_logged(&named.uid));
            self.end(one, end.map_err(|error| of_part(error, goes_on)));
        }
    }

    /// Lowers the size for what a batch names that is no Machine, after it was lowered for `lowered` Machines. `listed` is
    /// what was counted, where nothing was written or waited for since.
    async fn give_up_others(
        &self,
        batch: &Batch,
        version: &GroupVersion,
        lowered: usize,
        listed: Option<Listed>,
    ) -> Result<(), ScaleError> {
        let replicas: usize = batch.deletes.iter().map(|it| it.accepted.replicas).sum();
        let instances: usize = batch.deletes.iter().map(|it| it.request.instances).sum();
        if replicas + instances == 0 {
            return Ok(());
        }
        let lowered = i32::try_from(lowered).unwrap_or(i32::MAX);
        let from = batch.version.replicas.saturating_sub(lowered);
        let giving = GivingUp { places: Places { replicas, instances, from }, bounds: batch.bounds, listed };
        self.give_up(version.clone(), giving, batch.only_caller()).await?;
        if instances > 0 {
            self.tell(Happening::chosen_by_provider(instances));
        }
        Ok(())
    }

    /// Adds to a batch what was decided, and answers what needs nothing: that doesn't depend on the end of the rest. The
    /// entries that are to be marked are returned.
    fn take_in(&self, batch: &mut Batch, decided: Decided) -> VecDeque<Entry> {
        let Decided { version, bounds, accepted, listed, versions } = decided;
        let log = version.log().unwrap_or_default();
        let wanted_of = |it: &Sorted| {
            let entries = it.machines().filter_map(|named| log.get(&named.uid));
            entries.filter(|entry| entry.phase == Phase::Wanted).cloned().collect::<Vec<_>>()
        };
        let mut entries = VecDeque::new();
        for one in accepted {
            let wanted = wanted_of(&one);
            if wanted.is_empty() && one.others() == 0 {
                self.accepted(one.delete);
            } else {
                entries.extend(wanted);
                batch.deletes.push(one);
            }
        }
        (batch.version, batch.bounds, batch.listed) = (version, bounds, listed);
        batch.versions.extend(versions);
        batch.is_logged |= !entries.is_empty();
        entries
    }

    /// Marks what a batch has logged, side by side, and meanwhile lets the deletes join it that stand next. After a failure
    /// nobody joins, and no further mark is begun.
    async fn mark_and_take_in(&self, batch: &mut Batch, mut waiting: VecDeque<Entry>) -> Marked {
        let began = Instant::now();
        let mut marked = Marked::default();
        let mut on_their_way = HashSet::new();
        let mut marks = FuturesUnordered::new();
        let mut deciding = pin!(Fuse::terminated());
        let arrived = self.inner.lanes.arrived(&self.id);
        loop {
            while marks.len() < SIDE_BY_SIDE
                && marked.failures.is_empty()
                && let Some(entry) = waiting.pop_front()
            {
                // What somebody else wrote into the log is for who carries it out.
                if !self.is_stranger(&entry) && on_their_way.insert((entry.uid.clone(), entry.ticket.clone())) {
                    let version = batch.versions.get(&entry.uid).cloned();
                    marks.push(self.mark_logged(entry, version));
                }
            }
            let is_open = marked.failures.is_empty() && !batch.has_others() && began.elapsed() < OPEN_FOR;
            if is_open && deciding.is_terminated() {
                let next = self.inner.lanes.more_deletes(&self.id);
                if !next.is_empty() {
                    deciding.set(self.decide_next(next).fuse());
                }
            }
            tokio::select! {
                Some((entry, result)) = marks.next() => match result {
                    Ok(life) => marked.add(&entry, life),
                    Err(failure) => {
                        marked.failures.insert(entry.uid, failure);
                    }
                },
                decided = &mut deciding, if !deciding.is_terminated() => if let Some(decided) = decided {
                    waiting.extend(self.take_in(batch, decided));
                },
                () = arrived.notified(), if is_open && deciding.is_terminated() && !marks.is_empty() => {}
                else => return marked,
            }
        }
    }

    /// Decides deletes that join a batch, and those that come with them.
    async fn decide_next(&self, next: Vec<Delete>) -> Option<Decided> {
        let deletes = self.gather(next).await;
        for delete in &deletes {
            traces::asked_by(delete.caller.trace());
        }
        self.decide(deletes).await
    }

    async fn mark_logged(&self, entry: Entry, version: Option<ResourceVersion>) -> (Entry, Result<Life, NotMarked>) {
        let result = self.mark_one(&entry, version.as_ref()).await;
        (entry, result)
    }
}

/// The error of a request of which a part failed. Where the rest goes on, nothing was refused for good, nor left unchanged.
fn of_part(error: ScaleError, goes_on: bool) -> ScaleError {
    match error {
        ScaleError::InvalidArgument(text)
        | ScaleError::NotFound(text)
        | ScaleError::FailedPrecondition(text)
        | ScaleError::Aborted(text)
        | ScaleError::PermissionDenied(text)
            if goes_on =>
        {
            ScaleError::Unavailable(format!("{text}; other Machines that were named with it go"))
        }
        error => error,
    }
}
