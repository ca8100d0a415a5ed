//! A Cluster among many whose groups are written: the question if it may still be written, before each write, and its
//! share of the calls. A share delays calls, and never refuses any.

use std::{sync::Arc, time::Duration};

use http::Method;
use parking_lot::Mutex;
use rules::call_error::CallError;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, sleep},
};

/// The number of writes of all Clusters at a time.
const OF_ALL: usize = 64;
/// The number of calls of one Cluster at a time, reads included.
const OF_ONE: usize = 4;
/// The number of writes that a quiet Cluster may make without a pause, and the time in which one more is allowed.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_millis(50);

/// A Cluster that may be excluded from writes at any time.
pub trait MayWrite: Send + Sync {
    /// Checks that the Cluster's groups may be written now. It is called before each write, so it must answer from
    /// memory.
    ///
    /// # Errors
    /// The reason why they may not. What a command has marked is then taken back.
    fn may_write(&self) -> Result<(), String>;
}

impl<F: Fn() -> Result<(), String> + Send + Sync> MayWrite for F {
    fn may_write(&self) -> Result<(), String> {
        self()
    }
}

/// The writes of all Clusters. Clones share them.
#[derive(Clone, Debug)]
pub struct WriteBudget(Arc<Semaphore>);

impl Default for WriteBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_ALL)))
    }
}

/// The place of a Cluster among many; the default is that of a single one, which nothing limits.
#[derive(Clone, Default)]
pub(super) struct Tenancy(Option<Arc<Tenant>>);

/// One of many Clusters.
struct Tenant {
    may_write: Arc<dyn MayWrite>,
    share: Share,
}

/// The share of one Cluster. A Cluster waits for no more than its own writes among those of all, which take turns as
/// they come: that is a round robin among the busy ones.
#[derive(Debug)]
struct Share {
    all: Arc<Semaphore>,
    own: Semaphore,
    /// The time at which a whole burst is allowed again.
    full_at: Mutex<Instant>,
}

/// The right to make one call; held while it is made.
pub(super) struct Slot<'a> {
    _own: Option<SemaphorePermit<'a>>,
    _of_all: Option<SemaphorePermit<'a>>,
}

impl Share {
    fn new(budget: &WriteBudget) -> Self {
        let all = Arc::clone(&budget.0);
        Self { all, own: Semaphore::new(OF_ONE), full_at: Mutex::new(Instant::now()) }
    }

    async fn slot(&self) -> Slot<'_> {
        // No slot is held during the pause.
        let pause = self.pause(Instant::now());
        if !pause.is_zero() {
            sleep(pause).await;
        }
        // Neither semaphore is ever closed.
        Slot { _own: self.own.acquire().await.ok(), _of_all: self.all.acquire().await.ok() }
    }

    /// Returns the pause before the next write.
    fn pause(&self, now: Instant) -> Duration {
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now) + EVERY;
        full_at.saturating_duration_since(now + EVERY * BURST)
    }
}

impl Tenancy {
    pub(super) fn of_one_of_many(may_write: Arc<dyn MayWrite>, budget: &WriteBudget) -> Self {
        Self(Some(Arc::new(Tenant { may_write, share: Share::new(budget) })))
    }

    pub(super) fn is_one_of_many(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the slot of a write.
    pub(super) async fn slot(&self) -> Option<Slot<'_>> {
        match &self.0 {
            Some(tenant) => Some(tenant.share.slot().await),
            None => None,
        }
    }

    /// Waits for the slot of a read, which takes none of the places of all. A call by another method is a write, which
    /// has its slot already.
    pub(super) async fn read_slot(&self, method: &Method) -> Option<Slot<'_>> {
        match &self.0 {
            Some(tenant) if *method == Method::GET => {
                Some(Slot { _own: tenant.share.own.acquire().await.ok(), _of_all: None })
            }
            Some(_) | None => None,
        }
    }

    /// Checks that the Cluster may be written now.
    pub(super) fn check(&self) -> Result<(), CallError> {
        self.0.as_ref().map_or(Ok(()), |tenant| tenant.may_write.may_write().map_err(CallError::NotServed))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_has_a_burst_of_writes_and_then_twenty_a_second() {
        let share = Share::new(&WriteBudget::default());
        let begun = Instant::now();
        for _ in 0..BURST {
            drop(share.slot().await);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..40 {
            drop(share.slot().await);
        }
        let took = begun.elapsed();
        assert!((Duration::from_millis(1_990)..Duration::from_millis(2_100)).contains(&took), "{took:?}");
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let rested = Instant::now();
        for _ in 0..=BURST {
            drop(share.slot().await);
        }
        assert!(rested.elapsed() >= EVERY, "no more than a burst is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_makes_four_writes_at_a_time_and_keeps_no_other_waiting() {
        let budget = WriteBudget::default();
        let (busy, quiet) = (Share::new(&budget), Share::new(&budget));
        let slots: Vec<_> = std::iter::from_fn(|| busy.slot().now_or_never()).take(100).collect();
        assert_eq!(slots.len(), OF_ONE);
        assert!(quiet.slot().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_a_cluster_count_among_its_own_calls_alone() {
        let budget = WriteBudget(Arc::new(Semaphore::new(1)));
        let [busy, quiet] = [(); 2].map(|()| Tenancy::of_one_of_many(Arc::new(|| Ok(())), &budget));
        let reads: Vec<_> = std::iter::from_fn(|| busy.read_slot(&Method::GET).now_or_never()).take(100).collect();
        assert_eq!(reads.len(), OF_ONE);
        assert!(reads.iter().all(Option::is_some));
        assert!(busy.slot().now_or_never().is_none());
        let write = quiet.slot().now_or_never();
        assert!(write.is_some());
        assert!(quiet.read_slot(&Method::GET).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_writes_of_all_clusters_have_a_limit_and_take_turns() {
        let budget = WriteBudget::default();
        let shares: Vec<_> = (0..OF_ALL / OF_ONE).map(|_| Share::new(&budget)).collect();
        let mut held: Vec<_> = shares
            .iter()
            .flat_map(|share| std::iter::from_fn(|| share.slot().now_or_never()).take(OF_ONE).collect::<Vec<_>>())
            .collect();
        assert_eq!(held.len(), OF_ALL);
        // A task gets a limited number of permits until it yields.
        tokio::task::yield_now().await;
        let late = Share::new(&budget);
        let mut waits = Box::pin(late.slot());
        assert!(waits.as_mut().now_or_never().is_none());
        // The busiest Cluster comes back, behind the one that waits.
        held.remove(0);
        let mut again = Box::pin(shares[0].slot());
        assert!(again.as_mut().now_or_never().is_none());
        assert!(waits.now_or_never().is_some());
    }
}
