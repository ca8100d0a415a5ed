//! The rate of TLS handshakes: each takes up to a millisecond of a thread that answers calls. One beyond the rate is
//! closed when its ClientHello has arrived, before it costs that. Must keep no more addresses than the rate lets in.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::open_connections::Source;

/// A number of handshakes at once, and one more whenever a time has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) at_once: u32,
    pub(super) each: Duration,
}

/// The rates of handshakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeRates {
    /// The rate of an address that hasn't authenticated lately.
    pub(super) stranger: Rate,
    /// The rate of all such addresses together. It takes many to use it up, since a client that comes for the first
    /// time is among them.
    pub(super) strangers: Rate,
    /// The rate of an address that has authenticated lately.
    pub(super) known: Rate,
}

impl Default for HandshakeRates {
    fn default() -> Self {
        Self {
            stranger: Rate { at_once: 16, each: Duration::from_millis(500) },
            strangers: Rate { at_once: 256, each: Duration::from_millis(8) },
            known: Rate { at_once: 256, each: Duration::from_millis(32) },
        }
    }
}

impl HandshakeRates {
    /// Returns the rates for the autoscalers of thousands of clusters, which all connect after a restart.
    pub(super) fn of_many_clients() -> Self {
        Self {
            strangers: Rate { at_once: 4_096, each: Duration::from_millis(4) },
            known: Rate { at_once: 1_024, each: Duration::from_millis(8) },
            ..Self::default()
        }
    }
}

impl Rate {
    /// Takes a handshake. `used_until` is the time at which all are available again; returns the new one, or `None`
    /// if no handshake is available.
    fn take(self, used_until: Option<Instant>, now: Instant) -> Option<Instant> {
        let used_until = used_until.map_or(now, |until| until.max(now)) + self.each;
        (used_until.duration_since(now) <= self.each * self.at_once).then_some(used_until)
    }
}

/// The handshakes that were taken lately.
#[derive(Debug)]
pub(super) struct HandshakeRate {
    rates: HandshakeRates,
    used: Mutex<Used>,
}

/// The times at which all handshakes are available again.
#[derive(Debug, Default)]
struct Used {
    by_strangers: Option<Instant>,
    /// The times of sources, as known ones or as strangers: one that authenticates begins anew.
    by_source: HashMap<(Source, bool), Instant>,
}

impl HandshakeRate {
    pub(super) fn new(rates: HandshakeRates) -> Self {
        Self { rates, used: Mutex::default() }
    }

    /// Returns true if a handshake with this source may begin, and counts it.
    pub(super) fn admits(&self, source: Source, is_known: bool, now: Instant) -> bool {
        let HandshakeRates { stranger, strangers, known } = self.rates;
        let (key, rate) = ((source, is_known), if is_known { known } else { stranger });
        let mut used = self.used.lock();
        let Some(by_source) = rate.take(used.by_source.get(&key).copied(), now) else { return false };
        if !is_known {
            let Some(by_strangers) = strangers.take(used.by_strangers, now) else { return false };
            used.by_strangers = Some(by_strangers);
        }
        if !used.by_source.contains_key(&key) {
            used.by_source.retain(|_, until| *until > now);
        }
        used.by_source.insert(key, by_source);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(number: u32) -> Source {
        Source::Address(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into())
    }

    /// Returns the number of handshakes of the first 10,000 that these sources may begin at this time.
    fn admitted(rate: &HandshakeRate, is_known: bool, now: Instant, source: impl Fn(u32) -> Source) -> usize {
        (0..10_000).filter(|number| rate.admits(source(*number), is_known, now)).count()
    }

    #[test]
    fn an_address_has_a_number_of_handshakes_at_once_and_two_in_a_second() {
        let (rate, begun) = (HandshakeRate::new(HandshakeRates::default()), Instant::now());
        let after = |seconds| admitted(&rate, false, begun + SECOND * seconds, |_| address(1));
        assert_eq!([0, 0, 1, 4, 100, 100].map(after), [16, 0, 2, 6, 16, 0]);
    }

    #[test]
    fn one_address_takes_no_handshake_from_another() {
        let (rate, now) = (HandshakeRate::new(HandshakeRates::default()), Instant::now());
        for flooding in 1..15 {
            assert_eq!(admitted(&rate, false, now, |_| address(flooding)), 16);
        }
        assert!(rate.admits(address(15), false, now));
    }

    /// Returns the time for which these addresses keep out one that comes for the first time, if each of them is always
    /// there before it; `None` if it is kept out for longer than a minute.
    fn kept_out(flooding: u32) -> Option<Duration> {
        let (rate, begun) = (HandshakeRate::new(HandshakeRates::default()), Instant::now());
        let mut ticks = (0..7_500).map(|tick| HandshakeRates::default().strangers.each * tick);
        ticks.find(|passed| {
            let now = begun + *passed;
            for number in 1..=flooding {
                while rate.admits(address(number), false, now) {}
            }
            rate.admits(address(0), false, now)
        })
    }

    #[test]
    fn a_first_handshake_is_kept_out_for_moments_by_few_addresses_and_without_end_by_63() {
        assert_eq!([15, 16].map(kept_out), [0, 8].map(|millis| Some(Duration::from_millis(millis))));
        assert!(kept_out(40).is_some_and(|time| time < SECOND * 6), "{:?}", kept_out(40));
        assert_eq!(kept_out(63), None);
    }

    #[test]
    fn many_addresses_take_none_from_one_that_has_authenticated_lately() {
        let (rate, begun) = (HandshakeRate::new(HandshakeRates::default()), Instant::now());
        let strangers = |seconds| admitted(&rate, false, begun + SECOND * seconds, address);
        assert_eq!([0, 1, 1].map(strangers), [256, 125, 0]);
        assert_eq!(admitted(&rate, true, begun, |_| address(1)), 256, "it was among them, and begins anew");
    }

    #[test]
    fn as_many_addresses_are_kept_as_were_let_in_lately() {
        let (rate, begun) = (HandshakeRate::new(HandshakeRates::default()), Instant::now());
        for second in 0..100 {
            for number in 0..1_000 {
                rate.admits(address(second * 1_000 + number), false, begun + SECOND * second);
            }
            assert!(rate.used.lock().by_source.len() <= 256 + 125, "an address is forgotten when all are available");
        }
        assert_eq!(admitted(&rate, false, begun + SECOND * 200, |_| address(1)), 16);
        assert_eq!(rate.used.lock().by_source.len(), 1);
    }
}
