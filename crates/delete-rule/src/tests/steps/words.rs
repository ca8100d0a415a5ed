//! The calls and answers as strings.

use super::{text::Failed, *};
use crate::steps::{Call, CallerId, MarkCall, NotReplaced};

/// Formats a call.
pub(super) fn shown(call: &Call<Text>) -> String {
    match call {
        Call::ReadGroup(_) => "read group".to_owned(),
        Call::ReadSize(_) => "read size".to_owned(),
        Call::Read(named) => format!("read {}", named.name),
        Call::ReadDetails(named) => format!("whole {}", named.name),
        Call::ReadVersion(entry) => format!("version {}", entry.name),
        Call::List(_) => "list".to_owned(),
        Call::Lower { lowering, .. } if !lowering.names.is_empty() => {
            format!("lower to {}:{}", lowering.to, log_shown(&lowering.log))
        }
        Call::WriteLog { log, .. } | Call::Lower { lowering: Lowering { log, .. }, .. } => {
            format!("log{}", log_shown(log))
        }
        Call::Resize { to, counted, .. } => format!("resize to {to}{}", if *counted { ", counted" } else { "" }),
        Call::Mark(entry, call) => match call {
            MarkCall::ReadOwner => format!("owner {}", entry.name),
            MarkCall::Read => format!("read {}", entry.name),
            MarkCall::ReadDetails => format!("whole {}", entry.name),
            MarkCall::ReadGroup => format!("group for {}", entry.name),
            MarkCall::Set(_) => format!("mark {}", entry.name),
        },
        Call::Delete { machine, .. } => format!("delete {}", machine.name),
        Call::Unmark { name, .. } => format!("unmark {name}"),
        Call::WriteReplaced { replaced, .. } => format!("note {} as {}", replaced.uid, replaced.count),
        Call::Pause(row, _) => format!("pause {row:?}"),
    }
}

fn log_shown(log: &DeletionLog) -> String {
    let entry = |entry: &Entry| {
        let lowered = if entry.phase == Phase::Lowered { "!" } else { "" };
        format!(" {}{}{lowered}", entry.name, if entry.soft { "~" } else { "" })
    };
    log.entries().iter().map(entry).collect()
}

/// Formats the answers of callers.
pub(super) fn answers(ends: &[(CallerId, Result<(), NotDone>)]) -> Vec<String> {
    let end = |(caller, end): &(CallerId, Result<(), NotDone>)| match end {
        Ok(()) => format!("{caller}: done"),
        Err(why) => format!("{caller}: {}", reason(why)),
    };
    ends.iter().map(end).collect()
}

fn reason(why: &NotDone) -> String {
    match why {
        NotDone::Abandoned => "abandoned".to_owned(),
        NotDone::Size(_) | NotDone::Refused(Refusal::BelowMin(_)) => "below min".to_owned(),
        NotDone::Refused(Refusal::Replaced { named, left }) => format!("replaced, {left} of {named} left"),
        NotDone::Refused(refusal) => word(refusal).to_owned(),
        NotDone::Failed(Failed(failure)) => format!("failed, {failure:?}"),
        NotDone::Pending(Failed(failure)) => format!("pending, {failure:?}"),
        NotDone::GivenUp(name) => format!("given up {name}"),
        NotDone::NotReplaced(_, why) => match why {
            NotReplaced::Refused => "not replaced".to_owned(),
            NotReplaced::Unread(text) => format!("not replaced, {text}"),
            NotReplaced::Wait(_) => "not replaced yet".to_owned(),
            NotReplaced::Others { machine, others, .. } => format!("{machine} replaced, {others} others wait"),
        },
        NotDone::NotTakenBack { why, .. } => format!("{}, and not taken back", reason(why)),
        NotDone::MaybeLogged(why) => format!("{}, or logged", reason(why)),
        NotDone::InPart(why) => format!("{}, in part", reason(why)),
        NotDone::LoweredInPart(why) => format!("{}, lowered in part", reason(why)),
        other => format!("{other:?}"),
    }
}
