//! The page of one node group: the answers that Cluster Autoscaler gets about it with their sources, its instances, its
//! writes and refusals. An object that isn't a node group has a page too, with the reason.

use maud::{Markup, html};

use super::{
    listing::{Object, Row},
    overview::pager,
    parts::{Now, Severity, bar, description, graph, span},
    shell::{Foreign, Page, badge, cell, describe, id, labelled, outcome, path_of, table},
    view::{ROWS, View},
};
use crate::state::explain::{
    Explained, GroupReport,
    rows::{Row as Line, rows},
};
use crate::state::{Group, HistoryEntry, Instance, InstanceState, InstanceView, LeftOutObject, Problem, Run, State};

/// Renders the page of the only object in a state; `None` if there is none.
pub(super) fn group(state: &State, report: Option<&Explained>, past: &[Run], view: &View) -> Option<Markup> {
    let (row, content) = match (state.groups.first(), state.left_out.first()) {
        (Some(group), _) => (Row::of_group(group), of_group(group, report, (state, past), view)),
        (None, Some(object)) => (Row::of_left_out(object), of_left_out(object, state)),
        (None, None) => return None,
    };
    let (object, path) = (row.object, path_of(row.object.id()));
    let title = format!("{} – {}", object.id(), row.conditions.first().map_or("", |it| it.title()));
    let debug = view.debug_state(Some(object.id()));
    let page = Page { title: &title, path: &path, view, head: &state.head, debug: &debug };
    Some(page.around(&html! {
        nav aria-label="Back" { a href={ "/" (view.home().query()) } { "‹ all node groups" @if let Some(cluster) = &view.cluster { " of " (Foreign(cluster)) } } }
        h1 { (id(object.id())) }
        @if let Some(command) = describe_group(object) { p { (command) } }
        p class="states" { @for condition in &row.conditions { (badge(*condition)) " " } }
        @if !state.head.ready {
            p { (labelled(Severity::Bad, "not in sync")) " what is shown here may be out of date; the first page says why" }
        }
        (content)
    }))
}

fn describe_group(object: Object<'_>) -> Option<Markup> {
    let (namespace, name) = object.key().split_once('/')?;
    let resource = match object.kind() {
        "MachineDeployment" => "machinedeployments",
        "MachineSet" => "machinesets",
        "MachinePool" => "machinepools",
        _ => return None,
    };
    describe(&format!("{resource}.cluster.x-k8s.io"), Some(namespace), name)
}

fn of_group(group: &Group, report: Option<&Explained>, (state, past): (&State, &[Run]), view: &View) -> Markup {
    let report = match report {
        Some(Explained::Group(report)) => Some(report.as_ref()),
        Some(Explained::LeftOut(_)) | None => None,
    };
    let now = Now(state.head.taken_at);
    html! {
        (size(group, past, now))
        (problems(&group.problems))
        (history(&group.history, now))
        @if let Some(report) = report { (explained(report)) }
        (instances(group, now, view))
    }
}

fn of_left_out(object: &LeftOutObject, state: &State) -> Markup {
    html! {
        section aria-label="Why" {
            h2 { "Why it is no node group" }
            p class="reason" { (Foreign(&object.message)) }
            @for note in &object.notes { p class="reason" { (Foreign(note)) } }
            @if object.pinned {
                p { "It was one at the last Refresh, so it answers its last values until the next; writes to it are refused." }
            }
            @if !object.cluster.is_empty() { dl { (fact("Cluster", &Foreign(&object.cluster))) } }
        }
        (problems(&object.problems))
        (history(&object.history, Now(state.head.taken_at)))
    }
}

fn fact(name: &str, value: &impl maud::Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

fn size(group: &Group, past: &[Run], now: Now) -> Markup {
    let counts = &group.counts;
    html! {
        section aria-label="Size" {
            h2 { "Size" }
            div class="wide" { (bar(group)) }
            p class="words" { (description(group)) }
            (graph(past))
            dl {
                @if !group.cluster.is_empty() { (fact("Cluster", &Foreign(&group.cluster))) }
                (fact("Creating", &counts.creating))
                (fact("Deleting", &counts.deleting))
                (fact("Failed", &counts.failed))
                @if let Some(replicas) = group.spec_replicas { (fact("spec.replicas", &replicas)) }
                (fact("Reported to Cluster Autoscaler", &if group.pinned { "at the last Refresh" } else { "not yet" }))
            }
            @if let Some(written) = group.written {
                p { "The size " (written.replicas) " was written " (span(written.ago)) " ago and hasn't been seen by the watch yet." }
            }
            @if let Some(rollout) = &group.rollout {
                p {
                    "Rolling out since " (now.ago(rollout.since)) ": " span class="reason" { (Foreign(&rollout.message)) } ". "
                    @if rollout.ignored { "An annotation lets its Machines be deleted all the same." }
                    @else { "Meanwhile no Machine of it is deleted." }
                }
            }
        }
    }
}

fn problems(problems: &[Problem]) -> Markup {
    html! {
        @if !problems.is_empty() {
            section aria-label="Problems" {
                h2 { "Problems" }
                ul { @for problem in problems {
                    li { (labelled(Severity::Bad, problem.kind.as_str())) " " span class="reason" { (Foreign(&problem.message)) } }
                } }
            }
        }
    }
}

fn explained(report: &GroupReport) -> Markup {
    let lines = rows(report);
    html! {
        section aria-label="The Node that would join" {
            h2 { "The Node that would join" }
            p {
                "Scales from zero: "
                @if report.scales_from_zero { (labelled(Severity::Good, "yes")) @if let Some(by) = report.from_zero { " (" (by) ")" } } @else { (labelled(Severity::Odd, "no")) }
            }
            @if !lines.is_empty() {
                (table("folds lines", &["What", "Value", "Where it comes from"], &html! {
                    @for line in &lines { (explained_line(line)) }
                }))
            }
            @for note in report.not_from_zero.iter().chain(&report.notes) {
                p { b { "note: " } span class="reason" { (Foreign(note)) } }
            }
        }
    }
}

fn explained_line(line: &Line) -> Markup {
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { (Foreign(&line.name)) }
            (cell("Value", "value", &Foreign(&line.value)))
            (cell("Where it comes from", "aside", &Foreign(&line.from)))
        }
    }
}

fn history(entries: &[HistoryEntry], now: Now) -> Markup {
    html! {
        section aria-label="Writes and refusals" {
            h2 { "Writes and refusals" }
            @if entries.is_empty() {
                p { "None since the program started." }
            } @else {
                (table("folds history", &["What", "When", "How it ended", "Said"], &html! {
                    @for entry in entries { (entry_row(entry, now)) }
                }))
            }
        }
    }
}

fn entry_row(entry: &HistoryEntry, now: Now) -> Markup {
    html! {
        tr role="row" {
            th role="rowheader" scope="row" { (entry.what) }
            (cell("When", "", &html! {
                (now.ago_and_when(entry.last))
                @if entry.times > 1 { div class="aside" { (entry.times) " times, first " (now.ago(entry.first)) } }
            }))
            (cell("How it ended", "", &html! {
                (outcome(entry.outcome))
                @if let Some(code) = &entry.code { div class="aside" { code { (code) } } }
            }))
            (cell("Said", "reason", &Foreign(&entry.text)))
        }
    }
}

fn instances(group: &Group, now: Now, view: &View) -> Markup {
    let mut all: Vec<_> = group.instances.iter().flatten().collect();
    // Instances with an error come first, then those that are being created or deleted.
    all.sort_by_key(|it| (it.instance.error.is_none(), it.instance.state == InstanceState::Running));
    let pages = all.len().div_ceil(ROWS).max(1);
    let page = view.page.min(pages);
    html! {
        section aria-label="Instances" {
            h2 { "Instances" }
            @if all.is_empty() {
                p { "It has none." }
            } @else {
                @let namespace = group.id.split('/').nth(1);
                p class="found" {
                    (all.len()) @if all.len() == 1 { " instance" } @else { " instances" }
                    ". Open a name for its command; that of a Node is for the workload cluster."
                }
                (table("folds", &["Instance", "State", "Machine", "Node", "Age"], &html! {
                    @for it in all.iter().skip((page - 1) * ROWS).take(ROWS) { (instance(it, namespace, now)) }
                }))
                (pager(page, pages, &path_of(&group.id), view))
            }
        }
    }
}

fn instance(instance: &InstanceView, namespace: Option<&str>, now: Now) -> Markup {
    let Instance { id, state, error } = &instance.instance;
    let severity = match state {
        InstanceState::Running => Severity::Good,
        InstanceState::Creating | InstanceState::Deleting => Severity::Busy,
    };
    let name = |name: &Option<String>, resource: &str, namespace: Option<&str>, after: &str| {
        let command = name.as_ref().and_then(|name| describe(resource, namespace, name));
        html! {
            @match (name, command) {
                (Some(name), Some(command)) => details { summary { (Foreign(name)) (after) } (command) },
                (Some(name), None) => { (Foreign(name)) (after) },
                (None, _) => "–",
            }
        }
    };
    html! {
        tr role="row" {
            th role="rowheader" scope="row" class="id" { (Foreign(id)) }
            (cell("State", "", &html! {
                (labelled(severity, state.as_str()))
                @if let Some(error) = error {
                    " " (labelled(Severity::Bad, &error.code))
                    div class="aside reason" {
                        (Foreign(&error.message))
                        @if error.out_of_resources { " (out of capacity or quota)" }
                        @if !error.sent { " (not sent: in its grace period, or the delete would be refused)" }
                    }
                }
            }))
            (cell("Machine", "", &name(&instance.machine, "machines.cluster.x-k8s.io", namespace, "")))
            (cell("Node", "", &name(&instance.node, "node", None, if instance.node_gone { " (gone)" } else { "" })))
            (cell("Age", "number", &html! {
                @match instance.created_at { Some(created) => (now.age(created)), None => "–" }
            }))
        }
    }
}
