//! The table of a fleet's Clusters.

use jiff::Timestamp;

use super::{lay_out, none, shown};
use crate::state::{Client, ClusterCondition, DeniedCaller, FleetCluster, FleetState};

/// A Cluster with its conditions.
type Row<'a> = (&'a FleetCluster, Vec<ClusterCondition>);

/// A column: its heading, true if it holds numbers, and its cell.
type Column = (&'static str, bool, fn(&Row<'_>) -> String);

const COLUMNS: [Column; 8] = [
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
const NARROW: [Column; 1] = [("CALLER", false, |(cluster, _)| last_caller(cluster))];

/// The columns that follow in the wide table.
const WIDE: [Column; 5] = [
    ("CALLER", false, |(cluster, _)| of_callers(cluster, |caller| caller.peer.map(|peer| peer.to_string()))),
    ("SERIAL", false, |(cluster, _)| of_callers(cluster, |caller| caller.serial.as_ref().map(ToString::to_string))),
    ("DENIED", true, |(cluster, _)| cluster.denied_calls.to_string()),
    ("FOREIGN", true, |(cluster, _)| cluster.foreign_group_calls.to_string()),
    ("URI", false, |(cluster, _)| of_callers(cluster, |caller| caller.uri.as_ref().map(ToString::to_string))),
];

/// The columns of the callers that were denied.
const DENIED: [(&str, bool); 5] =
    [("DENIED CALLER", false), ("LAST", true), ("CALLS", true), ("ADDRESS", false), ("WHY", false)];

/// Renders the Clusters of a fleet for people, those in need first, below them the reasons, and the callers that were
/// denied. Each line ends with a newline and has no trailing space.
#[must_use]
pub fn clusters(state: &FleetState, wide: bool) -> String {
    let served = served(state, wide);
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

fn served(state: &FleetState, wide: bool) -> String {
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

/// Returns a value of each caller.
fn of_callers(cluster: &FleetCluster, value: impl Fn(&Client) -> Option<String>) -> String {
    let values: Vec<_> =
        cluster.callers.iter().map(|caller| value(caller).map_or_else(none, |it| shown(&it))).collect();
    if values.is_empty() { none() } else { values.join(", ") }
}
