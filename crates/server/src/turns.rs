//! The turns of a connection's calls. One thread answers all reads, in the order in which they come: a client that
//! makes hundreds of calls at once, and again when they are answered, must not make every other client wait for all of
//! them. No call fails for it, and a client with one call after another waits for nothing.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    mem,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
};

use futures::{StreamExt, future::Either, poll, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    task::yield_now,
};

/// The number of calls that are answered in a turn, and share a write to the socket. With four a thread answers a
/// fourth more calls in a second, and beside them others wait twice as long.
pub(super) const CALLS_IN_A_TURN: usize = 1;

/// The turns of a connection. Each time the thread comes to its task, some of its calls may be answered; the others
/// wait in their order.
#[derive(Debug)]
pub(super) struct Turns {
    /// A permit for each call of the turn.
    turn: Semaphore,
    /// The number of calls that wait for one.
    waiting: AtomicUsize,
    /// The number of calls that were answered in this turn.
    answered: AtomicUsize,
    /// Notified when a call was answered.
    has_answered: Notify,
}

/// A call that waits for its turn, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Turns {
    fn default() -> Self {
        let [waiting, answered] = [0, 0].map(AtomicUsize::new);
        Self { turn: Semaphore::new(CALLS_IN_A_TURN), waiting, answered, has_answered: Notify::new() }
    }
}

impl Turns {
    /// Begins a turn after each answer. It has to run in the connection's own task, which the thread comes to after the
    /// tasks of all others. If more calls wait, what others have sent by then comes first too.
    pub(super) async fn begin_each(&self) -> Infallible {
        // It is polled for its own wakes alone: what its connection has to read doesn't end its wait for others.
        // The second future, which is never woken, keeps the set from polling all of its futures: after that it would
        // wake its task once more.
        let mut begin = FuturesUnordered::from_iter([Either::Left(self.begin()), Either::Right(pending())]);
        match begin.next().await {
            Some(never) => never,
            None => pending().await,
        }
    }

    async fn begin(&self) -> Infallible {
        loop {
            self.has_answered.notified().await;
            if self.waiting.load(Ordering::Relaxed) > 0 {
                // After all others that are ready and what has arrived.
                yield_now().await;
            }
            self.turn.add_permits(self.answered.swap(0, Ordering::Relaxed));
        }
    }

    /// Carries out a call. Each step of it waits for the turn; one that doesn't answer leaves it to others.
    pub(super) async fn carry_out<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        loop {
            let turn = self.wait().await;
            if let Poll::Ready(answer) = poll!(call.as_mut()) {
                if let Some(turn) = turn {
                    turn.forget();
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    self.has_answered.notify_one();
                }
                return answer;
            }
            drop(turn);
            woken().await;
        }
    }

    /// Waits for the turn. It is never closed.
    async fn wait(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.turn.try_acquire() {
            return Some(turn);
        }
        let _waiting = Waiting::of(&self.waiting);
        self.turn.acquire().await.ok()
    }
}

/// Waits until the task is woken by what it polled before.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rstest::rstest;
    use tokio::{
        sync::oneshot,
        task::{JoinSet, yield_now},
    };

    use super::*;

    /// Ten connections with a hundred calls each, and one call that comes last.
    #[tokio::test]
    async fn a_call_waits_for_one_turn_of_each_other_connection() {
        let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        for (connection, calls) in (0..10).map(|connection| (connection, 100)).chain([(10, 1)]) {
            let turns = Arc::new(Turns::default());
            for _ in 0..calls {
                let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
                tasks.spawn(async move { turns.carry_out(async { order.lock().push(connection) }).await });
            }
            tasks.spawn(async move {
                turns.begin_each().await;
            });
        }
        while order.lock().len() < 1_001 {
            yield_now().await;
        }
        let order = order.lock();
        let last = order.iter().position(|connection| *connection == 10);
        assert!(last.is_some_and(|place| place <= 10 * CALLS_IN_A_TURN), "{last:?}");
        let mut counts = [0; 11];
        for connection in order.iter().filter(|connection| **connection != 10) {
            counts[*connection] += 1;
            let (fewest, most) = (counts[..10].iter().min(), counts.iter().max());
            let ahead = most.zip(fewest).map_or(0, |(most, fewest)| most - fewest);
            assert!(ahead <= 2 * CALLS_IN_A_TURN, "a connection is {ahead} calls ahead of another one");
        }
    }

    /// One call after another, as Cluster Autoscaler makes them.
    #[tokio::test]
    async fn a_client_with_one_call_after_another_waits_for_nothing() {
        let turns = Turns::default();
        let mut begin = pin!(turns.begin_each());
        for call in 0..10 {
            assert!(poll!(begin.as_mut()).is_pending());
            assert_eq!(poll!(pin!(turns.carry_out(async { call }))), Poll::Ready(call));
        }
    }

    /// The clients of two calls are gone: that of one which waits, and that of one whose turn has come.
    #[tokio::test]
    async fn calls_that_are_given_up_leave_their_turns_to_others() {
        let turns = Turns::default();
        let mut begin = pin!(turns.begin_each());
        assert!(poll!(begin.as_mut()).is_pending());
        let [mut first, mut second] = [1, 2].map(|call| Box::pin(turns.carry_out(async move { call })));
        for _ in 0..CALLS_IN_A_TURN {
            turns.carry_out(async {}).await;
        }
        assert!(poll!(first.as_mut()).is_pending());
        assert!(poll!(second.as_mut()).is_pending());
        drop(second);
        for _ in 0..3 {
            assert!(poll!(begin.as_mut()).is_pending());
            yield_now().await;
        }
        assert_eq!(turns.turn.available_permits(), CALLS_IN_A_TURN - 1, "one is the first call's");
        drop(first);
        assert_eq!(turns.turn.available_permits(), CALLS_IN_A_TURN);
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
        assert_eq!(poll!(pin!(turns.carry_out(async { 3 }))), Poll::Ready(3));
    }

    /// A call of another client leads to three steps, one after the other, as those of reading, answering and writing.
    /// The connection with more calls has nothing to read, or more all the time.
    #[rstest]
    #[case::nothing_to_read(false)]
    #[case::more_to_read_all_the_time(true)]
    #[tokio::test]
    async fn all_steps_of_others_come_before_the_next_call(#[case] reads: bool) {
        let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        let (steps, turns) = (Arc::new(Semaphore::new(0)), Arc::new(Turns::default()));
        for step in 1..=3 {
            let (steps, order) = (Arc::clone(&steps), Arc::clone(&order));
            tasks.spawn(async move {
                steps.acquire_many(step).await.expect("it stays open").forget();
                order.lock().push("a step of another");
                steps.add_permits(2 * usize::try_from(step).expect("a small number") + 1);
            });
        }
        for call in 0..CALLS_IN_A_TURN * 2 {
            let (turns, order, steps) = (Arc::clone(&turns), Arc::clone(&order), Arc::clone(&steps));
            let answer = async move {
                order.lock().push("a call");
                if call == 0 {
                    steps.add_permits(1);
                }
            };
            tasks.spawn(async move { turns.carry_out(answer).await });
        }
        tasks.spawn(async move {
            let reading = poll_fn(|context| {
                if reads {
                    context.waker().wake_by_ref();
                }
                Poll::<()>::Pending
            });
            tokio::select! {
                never = turns.begin_each() => match never {},
                () = reading => {}
            }
        });
        while order.lock().len() < CALLS_IN_A_TURN * 2 + 3 {
            yield_now().await;
        }
        let steps: Vec<_> = order.lock().split(|it| *it == "a step of another").map(<[_]>::len).collect();
        assert_eq!(steps, [CALLS_IN_A_TURN, 0, 0, CALLS_IN_A_TURN]);
    }

    /// A write waits for an API server, and the reads behind it don't wait for the write.
    #[tokio::test]
    async fn a_call_that_waits_holds_up_no_other() {
        let turns = Turns::default();
        let (answers, waiting): (Vec<_>, Vec<_>) = (0..CALLS_IN_A_TURN * 2).map(|_| oneshot::channel::<()>()).unzip();
        let writes = futures::future::join_all(waiting.into_iter().map(|answer| turns.carry_out(answer)));
        let mut writes = pin!(writes);
        assert!(poll!(writes.as_mut()).is_pending());
        assert_eq!(turns.carry_out(async { 5 }).await, 5);
        for answer in answers {
            assert_eq!(answer.send(()), Ok(()));
        }
        tokio::select! {
            never = turns.begin_each() => match never {},
            answered = writes => assert!(answered.iter().all(Result::is_ok)),
        }
    }
}
