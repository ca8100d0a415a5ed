//! The pace of connecting to workload clusters, and of reading their Secrets again. Of many clusters few may connect at
//! a time, those first whose autoscaler waits for it. A cluster that is down must take nothing from the others.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore, SetOnce},
};

/// The number of clusters of many that connect at a time.
const AT_ONCE: usize = 32;
/// The interval at which a Secret is read again that is the only one, whose token may expire, or whose cluster can't be
/// read.
const SECRET_INTERVAL: Duration = Duration::from_secs(60);
/// The interval for one of many Secrets. A certificate that has expired is noticed by the answer 401.
const SECRET_INTERVAL_OF_MANY: Duration = Duration::from_secs(600);
/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE_OF_MANY: Duration = Duration::from_secs(60);
/// The part of each time that is random, so that the requests for many clusters don't come together.
const JITTER: f64 = 0.2;

/// The pace for one workload cluster, or for one of many.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// The places of those that connect; `None` for a single cluster.
    places: Option<Arc<Places>>,
    /// Set once this cluster's autoscaler has called.
    called: Arc<SetOnce<()>>,
}

#[derive(Debug)]
struct Places {
    all: Arc<Semaphore>,
    /// The turn of those without a caller: one of them at a time stands in line for a place.
    without_a_caller: Semaphore,
}

/// A place among the clusters that connect; dropping it lets another one begin. A single cluster needs none.
#[derive(Debug)]
pub struct Place(Option<OwnedSemaphorePermit>);

impl Place {
    /// Returns true if others may wait for it.
    pub fn is_shared(&self) -> bool {
        self.0.is_some()
    }
}

impl Pace {
    /// Returns the pace of many workload clusters, of which each has [its own](Pace::of_another).
    pub fn of_many() -> Self {
        let places = Places { all: Arc::new(Semaphore::new(AT_ONCE)), without_a_caller: Semaphore::new(1) };
        Self { places: Some(Arc::new(places)), called: Arc::default() }
    }

    /// Returns the pace of another cluster among these.
    pub fn of_another(&self) -> Self {
        Self { places: self.places.clone(), called: Arc::default() }
    }

    /// Lets this cluster connect before those that no autoscaler waits for. It is called for each call.
    pub fn hurry(&self) {
        if !self.called.initialized() {
            // Another call was first.
            let _ = self.called.set(());
        }
    }

    /// Waits for a place. Whoever has a caller stands in line; of the others only the first does, which therefore
    /// comes in the end as well.
    pub(super) async fn place(&self) -> Place {
        let Some(places) = &self.places else { return Place(None) };
        let _turn = select! {
            biased;
            () = self.called.wait() => None,
            // Neither semaphore is ever closed.
            turn = places.without_a_caller.acquire() => turn.ok(),
        };
        Place(Arc::clone(&places.all).acquire_owned().await.ok())
    }

    pub(super) fn longest_pause(&self) -> Duration {
        if self.places.is_some() { LONGEST_PAUSE_OF_MANY } else { LONGEST_PAUSE }
    }

    /// Returns the time until a Secret is read again.
    pub(super) fn of_secret(&self, has_token: bool) -> Duration {
        if self.places.is_some() && !has_token { self.spread(SECRET_INTERVAL_OF_MANY) } else { self.often() }
    }

    /// Returns the time until a Secret is read again whose cluster can't be read.
    pub(super) fn often(&self) -> Duration {
        self.spread(SECRET_INTERVAL)
    }

    /// Returns a time of one of many, less a random part.
    pub(super) fn spread(&self, time: Duration) -> Duration {
        if self.places.is_none() {
            return time;
        }
        // Each `RandomState` has random keys of its own.
        let chance =
            f64::from(u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        time.mul_f64(1.0 - JITTER * chance)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn of_many_clusters_few_connect_at_a_time() {
        let pace = Pace::of_many();
        let mut places = Vec::new();
        for _ in 0..AT_ONCE {
            places.push(pace.of_another().place().now_or_never().unwrap());
        }
        assert!(places.iter().all(Place::is_shared));
        assert!(pace.place().now_or_never().is_none(), "no place is left");
        places.pop();
        assert!(pace.place().now_or_never().is_some());
        assert!(!Pace::default().place().now_or_never().unwrap().is_shared());
    }

    #[tokio::test]
    async fn clusters_whose_autoscaler_has_called_connect_first() {
        let pace = Pace::of_many();
        let mut places = Vec::new();
        while let Some(place) = pace.of_another().place().now_or_never() {
            places.push(place);
        }
        let waiting: Vec<_> = (0..4).map(|_| pace.of_another()).collect();
        let mut waits: Vec<_> = waiting.iter().map(|pace| Box::pin(pace.place())).collect();
        assert!(waits.iter_mut().all(|wait| wait.as_mut().now_or_never().is_none()));
        waiting[3].hurry();
        waiting[2].hurry();
        let mut order = Vec::new();
        while order.len() < waiting.len() {
            // Each looks at its autoscaler before a place is free.
            for n in [3, 2, 1, 0].into_iter().filter(|n| !order.contains(n)).collect::<Vec<_>>() {
                if let Some(place) = waits[n].as_mut().now_or_never() {
                    places.push(place);
                    order.push(n);
                }
            }
            drop(places.pop());
        }
        assert_eq!(order, [0, 3, 2, 1], "the first one without a caller was in line already");
    }

    #[test]
    fn secrets_of_many_are_read_seldom_and_not_together_unless_they_have_tokens() {
        let pace = Pace::of_many();
        let times: Vec<_> = (0..100).map(|_| pace.of_secret(false)).collect();
        assert!(
            times
                .iter()
                .all(|time| (SECRET_INTERVAL_OF_MANY.mul_f64(1.0 - JITTER)..=SECRET_INTERVAL_OF_MANY).contains(time)),
            "{times:?}"
        );
        assert!(times.iter().any(|time| *time != times[0]), "{times:?}");
        let with_token = pace.of_secret(true);
        assert!((SECRET_INTERVAL.mul_f64(1.0 - JITTER)..=SECRET_INTERVAL).contains(&with_token), "{with_token:?}");
        assert_eq!([false, true].map(|has_token| Pace::default().of_secret(has_token)), [SECRET_INTERVAL; 2]);
    }
}
