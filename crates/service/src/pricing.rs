//! Prices on the wire: the choice between old and new fields, the length of the time span, and the pod of a request.

use prost::bytes::Bytes;
use prost_types::Timestamp;
use rules::{Requests, pod};
use tonic::Status;

use super::wire_pod;
use index::NoPrice;

const NANOS_PER_SECOND: i128 = 1_000_000_000;
const NANOS_PER_HOUR: f64 = 3.6e12;

/// The range of a Timestamp: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A time in both forms, of which the new one is preferred.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) new: Option<&'a Timestamp>,
    pub(super) old: Option<&'a Timestamp>,
}

/// Returns the hours between two times.
///
/// # Errors
/// `INVALID_ARGUMENT` if one is missing or isn't a valid time, or the end is before the start.
pub(super) fn hours(start: Moment<'_>, end: Moment<'_>) -> Result<f64, Status> {
    let (start, end) = (nanos("start", start)?, nanos("end", end)?);
    if end < start {
        return Err(Status::invalid_argument(
            "the time span ends before it starts: endTimestamp must not be earlier than startTimestamp",
        ));
    }
    #[allow(clippy::cast_precision_loss, reason = "a price needs no nanoseconds")]
    let span = (end - start) as f64;
    Ok(span / NANOS_PER_HOUR)
}

fn nanos(name: &str, moment: Moment<'_>) -> Result<i128, Status> {
    let time = moment.new.or(moment.old).ok_or_else(|| {
        Status::invalid_argument(format!(
            "the time span has no {name}: set {name}Timestamp, or {name}Time as Cluster Autoscaler up to 1.34.1 does"
        ))
    })?;
    if !SECONDS.contains(&time.seconds) || !(0..1_000_000_000).contains(&time.nanos) {
        return Err(Status::invalid_argument(format!(
            "the {name} of the time span is no time: {} seconds and {} nanoseconds since 1970; seconds must be within the \
             years 1 to 9999, nanoseconds from 0 to 999999999",
            time.seconds, time.nanos
        )));
    }
    Ok(i128::from(time.seconds) * NANOS_PER_SECOND + i128::from(time.nanos))
}

/// Returns the resource requests of the pod in a request; of the two forms the new one is preferred.
///
/// # Errors
/// `INVALID_ARGUMENT` if there is no pod, or it can't be decoded.
pub(super) fn requests(new: &Bytes, old: &Bytes) -> Result<Requests, Status> {
    let bytes = if new.is_empty() { old } else { new };
    if bytes.is_empty() {
        return Err(Status::invalid_argument(
            "there is no pod: set pod_bytes, or pod as Cluster Autoscaler up to 1.34.1",
        ));
    }
    let pod = wire_pod::decode(bytes)?;
    pod::of_wire_spec(&pod.spec)
        .map_err(|error| Status::invalid_argument(format!("pod {}/{}: {error}", pod.namespace, pod.name)))
}

/// Maps a missing price to its code. Cluster Autoscaler treats all of them alike: it chooses without the group, or
/// without the prices of pods.
pub(super) fn status_of(error: &NoPrice) -> Status {
    let message = error.to_string();
    match error {
        NoPrice::Anywhere | NoPrice::OfResources => Status::unimplemented(message),
        NoPrice::OfGroup(_) | NoPrice::OfForeignNode => Status::not_found(message),
    }
}
