//! Limits how many Events are posted: a burst and then a rate, for each group and for all groups together. A refusal
//! that comes with every loop of the caller must not flood the API server.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use rules::GroupId;

/// The limit of one group.
const OF_A_GROUP: Rate = Rate { burst: 10, every: Duration::from_secs(30) };
/// The limit of one of many Clusters.
pub(super) const OF_A_CLUSTER: Rate = Rate { burst: 20, every: Duration::from_secs(1) };
/// The limit of all groups together.
const OF_ALL: Rate = Rate { burst: 50, every: Duration::from_millis(200) };
/// The number of groups from which on quiet ones are forgotten.
const MANY: usize = 1000;

/// A token bucket's size, and the time in which one token is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    burst: u32,
    every: Duration,
}

/// The time at which the bucket is full again; no later than now if nothing was let through recently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket(Instant);

impl Bucket {
    /// Returns a full bucket.
    pub(super) fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Takes a token. Returns false if there is none.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let made_up = self.0.max(now) + rate.every;
        let fits = made_up <= now + rate.every * rate.burst;
        if fits {
            self.0 = made_up;
        }
        fits
    }
}

/// The limits of each group and of all groups together.
#[derive(Debug)]
pub(super) struct Limit {
    all: Bucket,
    groups: HashMap<GroupId, Bucket>,
}

impl Limit {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: Bucket::new(now), groups: HashMap::new() }
    }

    /// Takes a token for an Event of a group. Returns false if one of the limits is reached.
    pub(super) fn take(&mut self, group: &GroupId, now: Instant) -> bool {
        if self.groups.len() >= MANY {
            self.groups.retain(|_, bucket| bucket.0 > now);
        }
        let bucket = self.groups.entry(group.clone()).or_insert(Bucket::new(now));
        // An Event beyond the group's own limit must take no token of the others.
        let mut all = self.all;
        let mut own = *bucket;
        let fits = own.take(OF_A_GROUP, now) && all.take(OF_ALL, now);
        if fits {
            (*bucket, self.all) = (own, all);
        }
        fits
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group(name: &str) -> GroupId {
        GroupId::parse(&format!("MachineDeployment/team-a/{name}")).unwrap()
    }

    fn taken(limit: &mut Limit, name: &str, tries: u32, now: Instant) -> usize {
        (0..tries).filter(|_| limit.take(&group(name), now)).count()
    }

    #[test]
    fn a_group_has_a_burst_and_then_one_every_half_minute() {
        let now = Instant::now();
        let mut limit = Limit::new(now);
        assert_eq!(taken(&mut limit, "a", 100, now), 10);
        assert_eq!(taken(&mut limit, "a", 100, now + Duration::from_secs(29)), 0);
        assert_eq!(taken(&mut limit, "a", 100, now + Duration::from_secs(95)), 3);
        assert_eq!(
            taken(&mut limit, "a", 100, now + Duration::from_secs(4000)),
            10,
            "no more than a burst is saved up"
        );
    }

    #[test]
    fn a_noisy_group_takes_nothing_from_the_others() {
        let now = Instant::now();
        let mut limit = Limit::new(now);
        assert_eq!(taken(&mut limit, "noisy", 10_000, now), 10);
        assert_eq!(taken(&mut limit, "quiet", 10, now), 10);
    }

    #[test]
    fn all_together_have_a_limit_too() {
        let now = Instant::now();
        let mut limit = Limit::new(now);
        let all = |limit: &mut Limit, now| (0..100).map(|n| taken(limit, &format!("g{n}"), 1, now)).sum::<usize>();
        assert_eq!(all(&mut limit, now), 50);
        assert_eq!(all(&mut limit, now + Duration::from_secs(1)), 5);
    }

    #[test]
    fn quiet_groups_are_forgotten() {
        let start = Instant::now();
        let mut limit = Limit::new(start);
        for n in 0..5000_u32 {
            let _ = limit.take(&group(&format!("g{n}")), start + Duration::from_secs(1) * n);
        }
        assert!(limit.groups.len() <= MANY, "{}", limit.groups.len());
    }
}
