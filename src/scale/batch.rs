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
    Command,
    api::CallError,
    delete::{Decided, Sorted},
    events::Happening,
    known::SIDE_BY_SIDE,
    lane::{Caller, Delete},
};
use crate::{
    capi::Uid,
    index::GroupVersion,
    nodegroup::{Bounds, Phase, Ticket, deletion_log::Entry},
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
}

/// What was marked of a batch.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// Each Machine, with the ticket that its mark has.
    pub(super) tickets: HashMap<Uid, Ticket>,
    /// The first mark that failed, if one did.
    pub(super) failure: Option<CallError>,
}

impl Batch {
    /// Whether it lowers the size for what has no Machine: what is still left of that is counted when a batch is decided.
    fn has_others(&self) -> bool {
        self.deletes.iter().any(|it| it.request.others > 0)
    }

    /// The Machines that it names.
    fn uids(&self) -> HashSet<Uid> {
        let named = self.deletes.iter().flat_map(|it| &it.request.machines);
        named.map(|named| named.uid.clone()).collect()
    }

    /// The one caller whose deadline ends the write; several can't end one write together.
    fn only_caller(&self) -> Option<&Caller> {
        match self.deletes.as_slice() {
            [one] if one.request.machines.is_empty() => Some(&one.delete.caller),
            _ => None,
        }
    }
}

impl Command {
    /// Deletes what a batch names, and answers each of its callers.
    pub(super) async fn delete(&self, deletes: Vec<Delete>) {
        let Some(decided) = self.decide(deletes).await else { return };
        let mut batch = Batch { version: decided.version.clone(), bounds: decided.bounds, deletes: Vec::new() };
        let entries = self.take_in(&mut batch, decided);
        let marked = self.mark_and_take_in(&mut batch, entries).await;
        let uids = batch.uids();
        let lowered = match self.carry_out(batch.version.clone(), &uids, batch.bounds, marked).await {
            Ok(version) => version,
            Err(error) => {
                let error = error.error();
                self.answer_all(batch.deletes, &error);
                return;
            }
        };
        let others: usize = batch.deletes.iter().map(|it| it.request.others).sum();
        let given_up = match others {
            0 => Ok(()),
            _ => self.give_up(lowered.clone(), others, batch.bounds, batch.only_caller()).await,
        };
        let instances = batch.deletes.iter().map(|it| it.request.others - it.replicas).sum();
        if given_up.is_ok() && instances > 0 {
            self.tell(Happening::chosen_by_provider(instances));
        }
        let log = match self.log_of(&lowered) {
            Ok(log) => log,
            Err(error) => {
                self.answer_all(batch.deletes, &error);
                return;
            }
        };
        for Sorted { delete, request, .. } in batch.deletes {
            let end = self.end_of(&log, &request).await;
            // Replicas without a Machine may have failed alone.
            match if request.others == 0 { end } else { end.and_then(|()| given_up.clone()) } {
                Ok(()) => self.accepted(delete),
                Err(error) => self.answer(delete.caller, Err(error)),
            }
        }
    }

    /// Adds to a batch what was decided, and answers what needs nothing: that doesn't depend on the end of the rest. The
    /// entries that are to be marked are returned.
    fn take_in(&self, batch: &mut Batch, Decided { version, bounds, accepted }: Decided) -> VecDeque<Entry> {
        let log = version.log().unwrap_or_default();
        let wanted_of = |it: &Sorted| {
            let entries = it.request.machines.iter().filter_map(|named| log.get(&named.uid));
            entries.filter(|entry| entry.phase == Phase::Wanted).cloned().collect::<Vec<_>>()
        };
        let mut entries = VecDeque::new();
        for one in accepted {
            let wanted = wanted_of(&one);
            if wanted.is_empty() && one.request.others == 0 {
                self.accepted(one.delete);
            } else {
                entries.extend(wanted);
                batch.deletes.push(one);
            }
        }
        (batch.version, batch.bounds) = (version, bounds);
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
                && marked.failure.is_none()
                && let Some(entry) = waiting.pop_front()
            {
                // What somebody else wrote into the log is for who carries it out.
                if !self.is_stranger(&entry) && on_their_way.insert((entry.uid.clone(), entry.ticket.clone())) {
                    marks.push(self.mark_logged(entry));
                }
            }
            let is_open = marked.failure.is_none() && !batch.has_others() && began.elapsed() < OPEN_FOR;
            if is_open && deciding.is_terminated() {
                let next = self.inner.lanes.more_deletes(&self.id);
                if !next.is_empty() {
                    deciding.set(self.decide_next(next).fuse());
                }
            }
            tokio::select! {
                Some((entry, result)) = marks.next() => match result {
                    Ok(()) => {
                        marked.tickets.insert(entry.uid, entry.ticket);
                    }
                    Err(error) => {
                        marked.failure.get_or_insert(error);
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

    async fn mark_logged(&self, entry: Entry) -> (Entry, Result<(), CallError>) {
        let result = self.mark_one(&entry).await;
        (entry, result)
    }
}
