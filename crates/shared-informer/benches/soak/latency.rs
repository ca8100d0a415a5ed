//! Durations counted in buckets, each an eighth of a doubling wide, so that their memory doesn't grow with their
//! number. It must never hold single durations.

use std::{fmt, time::Duration};

/// The number of buckets for each doubling.
const PARTS: usize = 8;
const BUCKETS: usize = 40 * PARTS;

/// Durations, to within a tenth.
#[derive(Clone)]
pub(crate) struct Latencies {
    buckets: [u64; BUCKETS],
    count: u64,
    longest: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, longest: Duration::ZERO }
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = latency.as_micros().max(1) as f64;
        let bucket = (micros.log2() * PARTS as f64) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
        self.longest = self.longest.max(latency);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the quantile for this share of the durations, rounded up to the end of its bucket.
    fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share) as u64;
        let mut passed = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            passed += count;
            if passed > wanted {
                return Duration::from_micros(2_f64.powf((bucket + 1) as f64 / PARTS as f64) as u64);
            }
        }
        self.longest
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, nearly_all] = [0.5, 0.99, 0.999].map(|share| self.quantile(share));
        let Self { count, longest, .. } = self;
        write!(f, "median {half:?}, 99 % {most:?}, 99.9 % {nearly_all:?}, longest {longest:?} of {count}")
    }
}
