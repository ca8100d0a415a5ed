//! Logs and traces reads that are slow or fail. The first of a kind is logged immediately, and those that follow within
//! a minute are counted: one cause fails a call for each of thousands of Nodes. It must cost a quick answer nothing,
//! and never log more than a few lines a minute, or one for each of some callers.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rules::log_limit::LogLimit;
use tonic::{Code, metadata::MetadataMap};

use super::metrics::Rpc;
use scale::{code_name, traces::Traces};

/// The number of callers' kinds from which on new callers share their lines: there may be any number of them.
const MANY: usize = 64;
/// The number of kinds of one caller from which on its new ones share the lines too.
const MANY_OF_ONE: usize = 4;
/// The maximum length of a logged id, in characters; a request may contain anything.
pub(super) const LONGEST_ID: usize = 300;

/// A read that has been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'a> {
    pub(super) rpc: Rpc,
    pub(super) code: Code,
    /// The caller, if those of many Clusters are answered together; else empty.
    pub(super) caller: &'a str,
    pub(super) took: Duration,
    /// The id of its group or the name of its Node, as requested; empty if it names none.
    pub(super) subject: &'a str,
    /// The reason why it failed; empty if it didn't.
    pub(super) message: &'a str,
    pub(super) metadata: &'a MetadataMap,
}

/// The log of slow and failed reads.
#[derive(Debug)]
pub(super) struct CallLog {
    slow: Duration,
    traces: Traces,
    logged: Mutex<LogLimit<Kind>>,
}

/// The kind of an answer. No caller's answers may keep those of another one out of the log.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Kind {
    rpc: &'static str,
    code: &'static str,
    caller: String,
}

/// The options for logging and tracing calls.
#[derive(Clone, Debug)]
pub struct CallLogOptions {
    /// The duration above which reads are logged.
    pub slow: Duration,
    /// The source of the spans of writes, and of reads that are slow or fail.
    pub traces: Traces,
}

impl Default for CallLogOptions {
    fn default() -> Self {
        Self { slow: Duration::from_millis(100), traces: Traces::default() }
    }
}

impl CallLog {
    pub(super) fn new(options: CallLogOptions) -> Self {
        let CallLogOptions { slow, traces } = options;
        Self { slow, traces, logged: Mutex::new(LogLimit::new(1)) }
    }

    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Returns true if an answer has to be logged or counted, since it is slow or failed.
    pub(super) fn must_record(&self, rpc: Rpc, code: Code, took: Duration) -> bool {
        !is_usual(rpc, code) || took > self.slow
    }

    /// Logs an answer, or counts it.
    pub(super) fn record(&self, answered: Answered<'_>, now: Instant) {
        let Some(more) = self.counted(&answered, now) else { return };
        let Answered { rpc, code, caller, took, subject, message, metadata } = answered;
        let group: String = subject.chars().take(LONGEST_ID).collect();
        let (rpc, milliseconds) = (rpc.as_str(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let span = self.traces.past_call(rpc, metadata, took);
        let trace = span.trace_id();
        let (name, client) = (code_name(code), named(caller));
        if code == Code::Ok {
            tracing::info!(rpc, group, code = name, milliseconds, more, trace, client, "an RPC was slow");
        } else {
            tracing::warn!(rpc, group, code = name, milliseconds, more, trace, client, "an RPC failed: {message}");
        }
        span.set("group", group);
        span.end(name, (code != Code::Ok).then(|| message.to_owned()));
    }

    /// Counts an answer. Returns the number of answers since the last logged one if this one has to be logged.
    fn counted(&self, answered: &Answered<'_>, now: Instant) -> Option<u64> {
        let Answered { rpc, code, caller, .. } = *answered;
        let mut kind = Kind { rpc: rpc.as_str(), code: code_name(code), caller: caller.to_owned() };
        let mut logged = self.logged.lock();
        if !logged.kinds().any(|known| *known == kind) {
            let named = || logged.kinds().filter(|other| !other.caller.is_empty());
            let its = named().filter(|other| other.caller == caller);
            if named().count() >= MANY || its.count() >= MANY_OF_ONE {
                kind.caller.clear();
            }
        }
        logged.allows(kind, 1, now)
    }

    /// Logs the counts whose minute is over. It must be called periodically.
    pub(super) fn sum_up(&self, now: Instant) {
        let over = self.logged.lock().over(now);
        for (Kind { rpc, code, caller }, more) in over {
            tracing::warn!(rpc, code, more, client = named(&caller), "further RPCs were slow or failed");
        }
    }
}

/// Returns a caller's name as a field of a line, which it has none of where all calls are of one Cluster.
fn named(caller: &str) -> Option<&str> {
    (!caller.is_empty()).then_some(caller)
}

/// Returns true if an answer isn't a failure: a missing template or price is a regular answer.
fn is_usual(rpc: Rpc, code: Code) -> bool {
    match code {
        Code::Ok => true,
        Code::Unimplemented => {
            matches!(rpc, Rpc::NodeGroupTemplateNodeInfo | Rpc::PricingNodePrice | Rpc::PricingPodPrice)
        }
        Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use rules::log_limit::PAUSE;
    use testkit::CapturedLog;

    const QUICK: Duration = Duration::from_micros(5);

    fn call_log() -> CallLog {
        CallLog::new(CallLogOptions::default())
    }

    fn failed<'a>(subject: &'a str, metadata: &'a MetadataMap) -> Answered<'a> {
        let (rpc, code) = (Rpc::NodeGroupTargetSize, Code::NotFound);
        Answered { rpc, code, caller: "", took: QUICK, subject, message: "nobody knows it", metadata }
    }

    #[rstest]
    #[case::quick(Rpc::Refresh, Code::Ok, QUICK, false)]
    #[case::at_the_limit(Rpc::Refresh, Code::Ok, Duration::from_millis(100), false)]
    #[case::slow(Rpc::Refresh, Code::Ok, Duration::from_millis(101), true)]
    #[case::failed(Rpc::Refresh, Code::Unavailable, QUICK, true)]
    #[case::no_template(Rpc::NodeGroupTemplateNodeInfo, Code::Unimplemented, QUICK, false)]
    #[case::no_price(Rpc::PricingNodePrice, Code::Unimplemented, QUICK, false)]
    #[case::no_template_and_slow(Rpc::NodeGroupTemplateNodeInfo, Code::Unimplemented, Duration::from_secs(1), true)]
    #[case::unimplemented_where_it_is_a_failure(Rpc::NodeGroups, Code::Unimplemented, QUICK, true)]
    fn slow_and_failed_reads_are_reported(
        #[case] rpc: Rpc,
        #[case] code: Code,
        #[case] took: Duration,
        #[case] expected: bool,
    ) {
        assert_eq!(call_log().must_record(rpc, code, took), expected);
    }

    #[test]
    fn the_first_of_a_code_is_logged_at_once_and_those_that_follow_as_a_sum() {
        let (call_log, metadata, begun) = (call_log(), MetadataMap::new(), Instant::now());
        let id = format!("MachineDeployment/a/{}", "b".repeat(100_000));
        let slow = Answered { code: Code::Ok, took: Duration::from_secs(2), message: "", ..failed("b", &metadata) };
        let said = CapturedLog::of(|| {
            for _ in 0..35_000 {
                call_log.record(failed(&id, &metadata), begun);
            }
            call_log.record(slow, begun);
            (0..=2).for_each(|minutes| call_log.sum_up(begun + PAUSE * minutes));
        });
        let lines: Vec<_> = said.lines().collect();
        let [first, slow, sum] = lines[..] else { panic!("{said}") };
        assert!(first.contains("WARN") && first.contains("an RPC failed: nobody knows it"), "{first}");
        assert!(first.contains("rpc=\"NodeGroupTargetSize\" group=\"MachineDeployment/a/b"), "{first}");
        assert!(first.contains("code=\"NOT_FOUND\" milliseconds=0 more=0"), "{first}");
        assert!(first.len() < 1_000, "{} bytes", first.len());
        assert!(slow.contains("an RPC was slow") && slow.contains("milliseconds=2000"), "{slow}");
        assert!(sum.contains("further RPCs were slow or failed") && sum.contains("more=34999"), "{sum}");
    }

    #[test]
    fn a_caller_that_is_refused_without_end_keeps_no_other_one_out_of_the_log() {
        let (call_log, metadata, begun) = (call_log(), MetadataMap::new(), Instant::now());
        let of = |caller| Answered { caller, ..failed("", &metadata) };
        let said = CapturedLog::of(|| {
            for _ in 0..1_000 {
                call_log.record(of("noisy"), begun);
            }
            call_log.record(of("quiet"), begun);
            call_log.sum_up(begun + PAUSE);
        });
        let lines: Vec<_> = said.lines().collect();
        let [noisy, quiet, sum] = lines[..] else { panic!("{said}") };
        assert!(noisy.contains("client=\"noisy\"") && quiet.contains("client=\"quiet\""), "{said}");
        assert!(sum.contains("more=999 client=\"noisy\""), "{said}");
    }

    #[test]
    fn few_callers_with_calls_of_all_kinds_keep_no_other_one_out_of_the_log() {
        let (call_log, metadata, begun) = (call_log(), MetadataMap::new(), Instant::now());
        let quiet: Vec<_> = (0..MANY / 2).map(|number| format!("quiet-{number}")).collect();
        let said = CapturedLog::of(|| {
            for caller in ["one", "other", "third"] {
                for (rpc, code) in
                    Rpc::ALL.into_iter().flat_map(|rpc| [Code::Unavailable, Code::Unknown].map(|code| (rpc, code)))
                {
                    call_log.record(Answered { rpc, code, caller, ..failed("", &metadata) }, begun);
                }
            }
            for caller in &quiet {
                call_log.record(Answered { caller, ..failed("", &metadata) }, begun);
            }
        });
        for caller in &quiet {
            assert!(said.contains(&format!("client=\"{caller}\"")), "{caller}: {said}");
        }
    }

    #[test]
    fn any_number_of_callers_has_a_bounded_number_of_lines() {
        let (call_log, metadata, begun) = (call_log(), MetadataMap::new(), Instant::now());
        let callers: Vec<_> = (0..1_000).map(|number| number.to_string()).collect();
        let said = CapturedLog::of(|| {
            for caller in &callers {
                call_log.record(Answered { caller, ..failed("", &metadata) }, begun);
            }
            call_log.sum_up(begun + PAUSE);
        });
        assert_eq!(said.lines().count(), MANY + 2, "one line of those that share it, and their sum");
        assert!(said.contains("more=935"), "{said}");
    }
}
