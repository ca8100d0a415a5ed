//! The tables of node groups and of a fleet's Clusters. Texts from clusters must be escaped.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;

use crate::state::explain::rows::{bytes, cores, plain as shown};
use crate::state::{
    CheckState, Client, ClusterRow, DeniedCaller, FleetCluster, FleetState, Group, HistoryEntry, HistoryOutcome,
    Instance, LeftOutObject, Problem, State, Template, TlsStanding,
};

const NONE: &str = "-";
const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const PODS: &str = "pods";
const DISK: &str = "ephemeral-storage";

/// The columns that the narrow table never hides.
const ALWAYS: [&str; 4] = ["ID", "MIN", "SIZE", "MAX"];

/// The part of the state to show.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// True if the table has more columns.
    pub wide: bool,
    /// True if left-out objects with their reasons and the problems of groups are shown.
    pub all: bool,
    /// True if instances are shown, provided that the state has them.
    pub instances: bool,
}

/// Renders the state for people: a table of the node groups by id, and below it the other parts of `view`. Each line
/// ends with a newline and has no trailing space, and equal states give equal texts.
pub fn table(state: &State, view: View) -> String {
    let mut parts = vec![groups(state, view)];
    parts.extend(trouble(state));
    if view.instances && state.groups.iter().any(|group| group.instances.as_ref().is_some_and(|all| !all.is_empty())) {
        parts.push(instances(state));
    }
    if view.all {
        if state.groups.iter().any(|group| !lines_of(group).is_empty()) {
            parts.push(problems(state));
        }
        parts.extend(left_out(state));
    }
    parts.join("\n")
}

/// A column: its heading, true if it holds numbers, and its cell.
type Column<'a> = (&'static str, bool, Box<dyn Fn(&Group) -> String + 'a>);

fn groups(state: &State, view: View) -> String {
    if state.groups.is_empty() {
        let hint = if view.all { "" } else { ": --all shows what is excluded and why" };
        return format!("no node groups{hint}\n");
    }
    let column = |heading, cell: fn(&Group) -> String| -> Column<'_> { (heading, false, Box::new(cell)) };
    let number = |heading, cell: fn(&Group) -> String| -> Column<'_> { (heading, true, Box::new(cell)) };
    let mut columns = vec![
        column("ID", |group| shown(&group.id)),
        number("MIN", |group| group.min_size.to_string()),
        number("SIZE", |group| group.size.to_string()),
        number("MAX", |group| group.max_size.to_string()),
        number("RUNNING", |group| group.counts.running.to_string()),
        number("CREATING", |group| group.counts.creating.to_string()),
        number("DELETING", |group| group.counts.deleting.to_string()),
        number("FAILED", |group| group.counts.failed.to_string()),
        number("CPU CAPACITY", |group| resource(group, CPU).map_or_else(none, cores)),
        number("MEMORY CAPACITY", |group| resource(group, MEMORY).map_or_else(none, bytes)),
        column("GPU", |group| group.template.as_ref().map_or_else(none, gpus)),
        column("ARCH", |group| group.template.as_ref().map_or_else(none, |template| shown(&template.arch))),
    ];
    let from_zero = || column("FROM ZERO", |group: &Group| group.from_zero.as_deref().map_or_else(none, shown));
    // Where Nodes are remembered, it says which groups live by them.
    if !view.wide && state.groups.iter().any(|group| group.from_zero.as_deref() == Some("remembered")) {
        columns.push(from_zero());
    }
    if view.wide {
        columns.extend([
            column("OS", |group| group.template.as_ref().map_or_else(none, |template| shown(&template.os))),
            number("PODS", |group| resource(group, PODS).map_or_else(none, shown)),
            number("DISK CAPACITY", |group| resource(group, DISK).map_or_else(none, bytes)),
            from_zero(),
            column("CLUSTER", |group| or_none(shown(&group.cluster))),
            column("TAINTS", |group| group.template.as_ref().map_or_else(none, taints)),
        ]);
    }
    let any_pinned = state.groups.iter().any(|group| group.pinned);
    columns.push(("NOTES", false, Box::new(move |group| or_none(notes(group, any_pinned)))));
    // The wide table has all columns, the narrow one only those that say something.
    let says_something = |(heading, _, cell): &Column<'_>| {
        ALWAYS.contains(heading) || state.groups.iter().any(|group| !matches!(cell(group).as_str(), "0" | NONE))
    };
    columns.retain(|column| view.wide || says_something(column));
    let headings: Vec<_> = columns.iter().map(|(heading, is_number, _)| (*heading, *is_number)).collect();
    let rows = state.groups.iter().map(|group| columns.iter().map(|(.., cell)| cell(group)).collect());
    lay_out(&headings, rows)
}

fn none() -> String {
    NONE.to_owned()
}

fn or_none(text: String) -> String {
    if text.is_empty() { none() } else { text }
}

fn resource<'a>(group: &'a Group, name: &str) -> Option<&'a str> {
    Some(group.template.as_ref()?.capacity.get(name)?.value.as_str())
}

fn gpus(template: &Template) -> String {
    let gpus = template.gpus.iter().map(|(name, count)| format!("{} {}", shown(count), shown(name)));
    or_none(gpus.collect::<Vec<_>>().join(", "))
}

fn taints(template: &Template) -> String {
    let taints = template.taints.iter().map(|taint| {
        let value = if taint.value.is_empty() { String::new() } else { format!("={}", shown(&taint.value)) };
        format!("{}{value}:{}", shown(&taint.key), shown(&taint.effect))
    });
    or_none(taints.collect::<Vec<_>>().join(", "))
}

/// Returns the rollout of a group in words. Servers older than the field `rollout` report less.
fn rollout(group: &Group) -> &'static str {
    match (&group.rollout, group.rolling_out) {
        (Some(rollout), false) if rollout.cause == "topology" => "upgrade pending",
        (_, true) => "rolling out",
        (_, false) => "",
    }
}

fn notes(group: &Group, any_pinned: bool) -> String {
    let problems = match group.problems.len() {
        0 => String::new(),
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    let refused =
        last_refusal(group).map_or_else(String::new, |last| format!("last command {}", last.outcome.as_str()));
    let notes = [
        rollout(group),
        if group.written.is_some() { "size written, not seen by the watch yet" } else { "" },
        // Before the first Refresh no group is pinned, so none counts as new.
        if any_pinned && !group.pinned { "new since the last Refresh" } else { "" },
        &problems,
        &refused,
    ];
    notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join(", ")
}

fn instances(state: &State) -> String {
    let rows = state.groups.iter().flat_map(|group| {
        group.instances.iter().flatten().map(|instance| {
            let Instance { id, state, error } = &instance.instance;
            let error =
                error.as_ref().map_or_else(none, |error| format!("{}: {}", shown(&error.code), shown(&error.message)));
            vec![
                shown(&group.id),
                shown(id),
                state.as_str().to_owned(),
                instance.machine.as_deref().map_or_else(none, shown),
                match instance.node.as_deref().map(shown) {
                    Some(node) if instance.node_gone => format!("{node} (gone)"),
                    Some(node) => node,
                    None => none(),
                },
                error,
            ]
        })
    });
    let headings = ["NODE GROUP", "INSTANCE", "STATE", "MACHINE", "NODE", "ERROR"];
    lay_out(&headings.map(|heading| (heading, false)), rows)
}

fn problems(state: &State) -> String {
    let rows = state.groups.iter().map(|group| (group, lines_of(group))).filter(|(_, lines)| !lines.is_empty());
    let rows = rows.map(|(group, lines)| vec![shown(&group.id), lines.join("\n")]);
    lay_out(&[("NODE GROUP", false), ("PROBLEMS", false)], rows)
}

/// Returns the problems of a group, and its last command if that was refused or failed.
fn lines_of(group: &Group) -> Vec<String> {
    let refusal = last_refusal(group).map(|last| format!("{} {}: {}", last.what, last.outcome.as_str(), last.text));
    lines(&group.problems).into_iter().chain(refusal.map(|text| shown(&text))).collect()
}

/// Returns the last history entry of a group if it was refused or failed.
fn last_refusal(group: &Group) -> Option<&HistoryEntry> {
    group.history.first().filter(|last| last.outcome != HistoryOutcome::Done)
}

/// Returns a table of the objects that are left out; MachineSets of MachineDeployments are only counted.
fn left_out(state: &State) -> Option<String> {
    let (owned, others): (Vec<_>, Vec<_>) =
        state.left_out.iter().partition(|object| object.reason == LeftOutObject::OWNED);
    let mut text = String::new();
    if !others.is_empty() {
        let rows = others.into_iter().map(|object| {
            let mut why = vec![shown(&object.message)];
            why.extend(lines(&object.problems));
            if object.pinned {
                why.push("it answers its last values until the next Refresh".to_owned());
            }
            vec![shown(&object.id), why.join("\n")]
        });
        text = lay_out(&[("EXCLUDED", false), ("WHY", false)], rows);
    }
    match owned.len() {
        0 => {}
        1 => text.push_str("(and 1 MachineSet that its MachineDeployment scales)\n"),
        many => {
            // Writing to a String can't fail.
            let _ = writeln!(text, "(and {many} MachineSets that their MachineDeployments scale)");
        }
    }
    (!text.is_empty()).then_some(text)
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|problem| shown(&problem.message)).collect()
}

/// Returns a table of the server's own faults, after which the table of groups may be out of date: checks that aren't in sync and of certificates that have expired or can't be loaded; `None` if
/// there are none.
fn trouble(state: &State) -> Option<String> {
    let pending = state.head.checks.iter().filter(|check| check.state == CheckState::Pending);
    let pending = pending.map(|check| (shown(&check.name), check.reason.as_deref().map_or_else(String::new, shown)));
    let of_tls = state.tls.as_ref().map(|tls| certificates(tls, state.head.taken_at));
    let rows: Vec<_> = pending.chain(of_tls.into_iter().flatten()).map(|(what, why)| vec![what, why]).collect();
    (!rows.is_empty()).then(|| lay_out(&[("NOT AS IT SHOULD BE", false), ("WHY", false)], rows.into_iter()))
}

fn certificates(tls: &TlsStanding, now: Timestamp) -> Vec<(String, String)> {
    let expired = |what: &str, moment: Timestamp| {
        (moment < now).then(|| (what.to_owned(), format!("expired at {moment}: clients refuse it")))
    };
    let server = expired("server certificate", tls.server_until);
    let clients = tls.clients_until.and_then(|moment| expired("client authority", moment));
    let failing = tls.failing.as_deref().map(|why| ("TLS files".to_owned(), shown(why)));
    [server, clients, failing].into_iter().flatten().collect()
}

// The table of a fleet's Clusters.

/// A column of the table of Clusters: its heading, true if it holds numbers, and its cell.
type ClusterColumn = (&'static str, bool, fn(&ClusterRow<'_>) -> String);

const COLUMNS: [ClusterColumn; 8] = [
    ("CLUSTER", false, |(cluster, _)| shown(&cluster.id())),
    ("STATE", false, |(_, conditions)| {
        conditions.iter().map(|condition| condition.title()).collect::<Vec<_>>().join(", ")
    }),
    ("REFRESH", true, |(cluster, _)| cluster.calls.last_refresh_ago.map_or_else(none, |ago| format!("{ago}s ago"))),
    ("GROUPS", true, |(cluster, _)| cluster.groups.to_string()),
    ("PROBLEMS", true, |(cluster, _)| cluster.problems.to_string()),
    ("MACHINES", true, |(cluster, _)| cluster.machines.to_string()),
    ("NODES", true, |(cluster, _)| cluster.nodes.to_string()),
    ("CERT UNTIL", false, |(cluster, _)| {
        cluster.certificate_until().map_or_else(none, |until: Timestamp| until.strftime("%F").to_string())
    }),
];

/// The columns that follow in the narrow table, in which a Cluster has one caller.
const NARROW: [ClusterColumn; 1] = [("CALLER", false, |(cluster, _)| last_caller(cluster))];

/// The columns that follow in the wide table.
const WIDE: [ClusterColumn; 5] = [
    ("CALLER", false, |(cluster, _)| of_callers(cluster, |caller| caller.peer.map(|peer| peer.to_string()))),
    ("SERIAL", false, |(cluster, _)| of_callers(cluster, |caller| caller.serial.as_ref().map(ToString::to_string))),
    ("DENIED", true, |(cluster, _)| cluster.denied_calls.to_string()),
    ("FOREIGN", true, |(cluster, _)| cluster.foreign_group_calls.to_string()),
    ("URI", false, |(cluster, _)| of_callers(cluster, |caller| caller.uri.as_ref().map(ToString::to_string))),
];

const DENIED: [(&str, bool); 5] =
    [("DENIED CALLER", false), ("LAST", true), ("CALLS", true), ("ADDRESS", false), ("WHY", false)];

/// Renders the Clusters of a fleet for people, those in need first, below them the reasons, and the callers that were
/// denied. Each line ends with a newline and has no trailing space.
pub fn clusters(state: &FleetState, wide: bool) -> String {
    let served = cluster_table(state, wide);
    if state.denied.is_empty() {
        return served;
    }
    let row = |caller: &DeniedCaller| {
        vec![
            shown(&caller.identity),
            format!("{}s ago", caller.last_ago),
            caller.denied_calls.to_string(),
            caller.peer.map_or_else(none, |peer| peer.to_string()),
            shown(&caller.reason),
        ]
    };
    [served, lay_out(&DENIED, state.denied.iter().map(row))].join("\n")
}

fn cluster_table(state: &FleetState, wide: bool) -> String {
    if state.clusters.is_empty() {
        return "no Clusters: one has to match --fleet-selector by its labels\n".to_owned();
    }
    let rows = state.in_need_first();
    let columns: Vec<_> = COLUMNS.iter().chain(if wide { WIDE.iter() } else { NARROW.iter() }).collect();
    let headings: Vec<_> = columns.iter().map(|(heading, is_number, _)| (*heading, *is_number)).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(.., cell)| cell(row)).collect());
    let table = lay_out(&headings, cells);
    let why = |cluster: &FleetCluster| Some(vec![shown(&cluster.id()), shown(cluster.why()?)]);
    let reasons: Vec<_> = rows.iter().filter_map(|(cluster, _)| why(cluster)).collect();
    if reasons.is_empty() {
        return table;
    }
    [table, lay_out(&[("CLUSTER", false), ("WHY", false)], reasons.into_iter())].join("\n")
}

/// Returns the address of the caller that has called last, and the number of the others.
fn last_caller(cluster: &FleetCluster) -> String {
    let Some((last, others)) = cluster.callers.split_first() else { return none() };
    let peer = last.peer.map_or_else(none, |peer| peer.to_string());
    if others.is_empty() { peer } else { format!("{peer} +{}", others.len()) }
}

fn of_callers(cluster: &FleetCluster, value: impl Fn(&Client) -> Option<String>) -> String {
    let values: Vec<_> =
        cluster.callers.iter().map(|caller| value(caller).map_or_else(none, |it| shown(&it))).collect();
    if values.is_empty() { none() } else { values.join(", ") }
}

const GAP: u16 = 3;

/// Lays out columns without borders, like kubectl; numbers are right-aligned.
fn lay_out(headings: &[(&str, bool)], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|(heading, _)| *heading));
    table.add_rows(rows);
    for (column, (_, is_number)) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, GAP));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Check, Head};

    fn head(checks: Vec<Check>) -> Head {
        Head { taken_at: "2026-01-01T00:00:00Z".parse().unwrap(), checks, ..Head::default() }
    }

    #[test]
    fn a_server_that_is_well_has_no_trouble() {
        let tls = TlsStanding { server_until: "2027-01-01T00:00:00Z".parse().unwrap(), ..TlsStanding::default() };
        let check = |state| Check { name: "templates/x".to_owned(), state, reason: None };
        let state = State {
            head: head(vec![check(CheckState::Ready), check(CheckState::Informational)]),
            tls: Some(tls),
            ..State::default()
        };
        assert_eq!(trouble(&state), None);
    }

    #[test]
    fn resources_that_are_not_in_sync_and_bad_certificates_are_listed_with_the_reason() {
        let state = State {
            head: head(vec![Check {
                name: "workload/nodes".to_owned(),
                state: CheckState::Pending,
                reason: Some("forbidden\u{1b}".to_owned()),
            }]),
            tls: Some(TlsStanding {
                server_until: "2025-12-31T00:00:00Z".parse().unwrap(),
                clients_until: Some("2027-01-01T00:00:00Z".parse().unwrap()),
                failing: Some("tls.crt: no".to_owned()),
            }),
            ..State::default()
        };
        let expected = [
            "NOT AS IT SHOULD BE   WHY",
            "workload/nodes        forbidden\\u{1b}",
            "server certificate    expired at 2025-12-31T00:00:00Z: clients refuse it",
            "TLS files             tls.crt: no",
        ];
        assert_eq!(trouble(&state), Some(expected.join("\n") + "\n"));
    }
}
