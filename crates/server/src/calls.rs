//! The calls of a connection: those under way, the order of the last ones, and the silence after a loop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The counter of the calls of all connections.
#[derive(Debug, Default)]
pub(super) struct AllCalls(Arc<AtomicU64>);

impl AllCalls {
    /// Returns the counter of a new connection.
    pub(super) fn of_connection(&self) -> Calls {
        Calls { all: Arc::clone(&self.0), last: Arc::default(), activity: Arc::default() }
    }
}

/// The counter of a connection's calls, in the order of the calls of all connections.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    all: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
    activity: Arc<Mutex<Activity>>,
}

/// The activity of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    /// The number of calls under way.
    under_way: usize,
    /// The time at which the last call ended; `None` if none has.
    ended: Option<Instant>,
}

/// A call that is being answered, or whose answer is being read.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Mutex<Activity>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut activity = self.0.lock();
        activity.under_way -= 1;
        activity.ended = Some(now);
    }
}

impl Calls {
    /// Notes a call that is under way until the result is dropped.
    pub(super) fn begin(&self) -> UnderWay {
        self.activity.lock().under_way += 1;
        UnderWay(Arc::clone(&self.activity))
    }

    /// Waits for the moment at which the last call ended this time ago: a loop has ended, and the next one is far. A
    /// silence that began earlier doesn't count, since a loop may begin at any moment of it. A connection without a
    /// call has no loops.
    pub(super) async fn silence(&self, length: Duration) {
        let asked = Instant::now();
        loop {
            let (Activity { under_way, ended }, now) = (*self.activity.lock(), Instant::now());
            let silent = ended.unwrap_or(asked) + length;
            if under_way == 0 && (asked..=now).contains(&silent) {
                return;
            }
            sleep_until(if under_way == 0 && silent > now { silent } else { now + length }).await;
        }
    }

    /// Returns the number of its last call, in the order of the calls of all connections; 0 if there was none.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Makes its connection the most recently used one.
    pub(super) fn count(&self) {
        self.last.store(self.all.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_silent_a_second_after_its_last_call() {
        let (calls, begun) = (AllCalls::default().of_connection(), Instant::now());
        let second = Duration::from_secs(1);
        let caller = async {
            let under_way = calls.begin();
            sleep(second * 3 / 2).await;
            drop(under_way);
            sleep(second * 9 / 10).await;
            drop(calls.begin());
        };
        tokio::join!(calls.silence(second), caller);
        assert_eq!(begun.elapsed().as_millis() / 10, 340);
    }

    /// The next loop may begin in the moment in which a silence is noticed late.
    #[tokio::test(start_paused = true)]
    async fn a_silence_that_began_long_ago_does_not_count() {
        let (calls, begun) = (AllCalls::default().of_connection(), Instant::now());
        let second = Duration::from_secs(1);
        drop(calls.begin());
        sleep(Duration::from_millis(8_500)).await;
        let next_loop = async {
            sleep(Duration::from_millis(1_500)).await;
            drop(calls.begin());
        };
        tokio::join!(calls.silence(second), next_loop);
        assert_eq!(begun.elapsed().as_millis() / 10, 1_100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_call_is_silent() {
        let (calls, begun) = (AllCalls::default().of_connection(), Instant::now());
        calls.silence(Duration::from_secs(1)).await;
        assert_eq!(begun.elapsed().as_millis() / 10, 100);
    }
}
