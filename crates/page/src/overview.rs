//! The first page: the calls of Cluster Autoscaler, the sync state, and the node groups, the most urgent first.

use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    listing::{Listing, Object, Row},
    parts::{Condition, Now, Severity, bar, span},
    shell::{Foreign, Page, badge, cell, found, id, labelled, outcome, path_of, standing, table},
    view::{Filter, Order, View},
};
use crate::state::{
    Check, CheckState, ClusterState, ENDS_SOON, Group, InformerState, Problem, QUIET, State, TlsStanding,
};

/// The number of writes and refusals on the first page.
const RECENT: usize = 5;

/// Renders the first page, given the ids of the groups with the Machine, Node or instance that the search names.
pub(super) fn overview(state: &State, named: &[String], view: &View) -> Markup {
    let listing = Listing::of(state, named, view);
    let wrong: usize =
        listing.counts.iter().filter(|(it, _)| it.severity() == Severity::Bad).map(|(_, count)| count).sum();
    let title = match (state.head.ready, wrong) {
        (false, _) => "Not in sync – node groups".to_owned(),
        (true, 0) => "Node groups".to_owned(),
        (true, wrong) => format!("{wrong} to look at – node groups"),
    };
    let page = Page { title: &title, path: "/", view, head: &state.head, debug: &view.debug_state(None) };
    page.around(&html! {
        @if view.cluster.is_some() { nav aria-label="Back" { a href={ "/" (view.top().query()) } { "‹ all Clusters" } } }
        h1 { "Node groups" @if let Some(cluster) = &view.cluster { " of " (Foreign(cluster)) } }
        (at_a_glance(state))
        (recent(state, view))
        // The clusters are above the groups if one is broken, and otherwise below them, since that table may be long.
        @let is_fine = state.clusters.iter().all(|it| !it.informers.is_empty() && it.informers.iter().all(is_fine));
        @if is_fine { (groups(state, &listing, named, view)) (clusters(state)) }
        @else { (clusters(state)) (groups(state, &listing, named, view)) }
    })
}

fn at_a_glance(state: &State) -> Markup {
    html! {
        section class="standing" aria-label="At a glance" {
            div class="card" { h2 { "Called" } (called(state)) }
            (standing(&state.head, state.tls.as_ref()))
        }
    }
}

fn called(state: &State) -> Markup {
    let calls = &state.calls;
    html! {
        @match (calls.last_refresh_ago, &calls.last_refresh_refused) {
            (Some(ago), None) if ago < QUIET => p { (labelled(Severity::Good, "yes")) " Refresh " (span(ago)) " ago" },
            (Some(ago), Some(why)) if ago < QUIET => {
                p { (labelled(Severity::Bad, "refused")) " Refresh " (span(ago)) " ago" }
                p class="reason" { (Foreign(why)) }
            },
            // Of several replicas one is called, and the others are no outage.
            (last, _) => {
                p {
                    (labelled(Severity::Quiet, "not called here"))
                    @if let Some(ago) = last { " Refresh " (span(ago)) " ago" } @else { " no Refresh since the start" }
                }
                p {
                    "Another replica may be. If none is: does Cluster Autoscaler run and lead, and does the address in its "
                    "cloud-config lead here?"
                }
            }
        }
    }
}

pub(super) fn sync_check(check: &Check) -> Markup {
    html! {
        code { (Foreign(&check.name)) }
        @if let Some(reason) = &check.reason { ": " span class="reason" { (Foreign(reason)) } }
        @if check.state == CheckState::Informational { " (concerns its own groups only)" }
    }
}

pub(super) fn certificate(tls: &TlsStanding, now: Now) -> Markup {
    let until = |what: &str, moment: Timestamp| {
        let (severity, word) = match -now.seconds_since(moment) {
            ..0 => (Severity::Bad, "expired"),
            0..ENDS_SOON => (Severity::Odd, "expires soon"),
            ENDS_SOON.. => (Severity::Good, "valid"),
        };
        html! { p { (what) ": " (labelled(severity, word)) " ends " (now.ago(moment)) } }
    };
    html! {
        (until("server", tls.server_until))
        @if let Some(moment) = tls.clients_until { (until("client authority", moment)) }
        @if let Some(why) = &tls.failing {
            p { (labelled(Severity::Bad, "new files can't be used")) }
            p class="reason" { (Foreign(why)) }
        }
    }
}

fn clusters(state: &State) -> Markup {
    let now_waiting = |cluster: &ClusterState| cluster.informers.iter().filter(|it| !is_fine(it)).count();
    html! {
        section aria-label="Clusters" {
            h2 { "Clusters" }
            @for cluster in &state.clusters {
                @let waiting = now_waiting(cluster);
                details open[waiting > 0 || cluster.informers.is_empty()] {
                    summary {
                        span class="what" { (cluster.name) }
                        @if cluster.informers.is_empty() {
                            (labelled(Severity::Bad, "not connected"))
                        } @else if waiting > 0 {
                            (labelled(Severity::Bad, &format!("{waiting} of {} not in sync", cluster.informers.len())))
                        } @else {
                            (labelled(Severity::Good, &in_sync(cluster.informers.len())))
                        }
                    }
                    @if cluster.informers.is_empty() {
                        p { "No kind is watched yet; \"In sync\" above says why." }
                    } @else {
                        (informers(&cluster.informers))
                    }
                }
            }
        }
    }
}

fn in_sync(kinds: usize) -> String {
    if kinds == 1 { "1 kind in sync".to_owned() } else { format!("{kinds} kinds in sync") }
}

fn is_fine(informer: &InformerState) -> bool {
    informer.synced && informer.reason.is_none()
}

pub(super) fn informers(informers: &[InformerState]) -> Markup {
    let ago = |seconds: Option<u64>| seconds.map_or_else(|| "never".to_owned(), |it| format!("{} ago", span(it)));
    table(
        "folds",
        &["Kind", "State", "Objects", "Last event", "Watch errors"],
        &html! {
            @for it in informers {
                tr role="row" {
                    th role="rowheader" scope="row" {
                        (Foreign(&it.resource))
                        @if it.namespaces != "all namespaces" { " in " (Foreign(&it.namespaces)) }
                    }
                    (cell("State", "", &informer_state(it)))
                    (cell("Objects", "number", &html! {
                        (it.objects) @if it.undecodable > 0 { " (" (it.undecodable) " don't decode)" }
                    }))
                    (cell("Last event", "number", &ago(it.last_event_ago)))
                    (cell("Watch errors", "number", &it.watch_errors))
                }
            }
        },
    )
}

fn informer_state(informer: &InformerState) -> Markup {
    html! {
        @match (&informer.reason, informer.synced) {
            (None, true) => (labelled(Severity::Good, "in sync")),
            (None, false) => (labelled(Severity::Odd, "first list under way")),
            (Some(_), true) => (labelled(Severity::Bad, "broken")),
            (Some(_), false) => (labelled(Severity::Bad, "not in sync")),
        }
        @if let Some(broken_for) = informer.broken_for { " for " (span(broken_for)) }
        @if let Some(reason) = &informer.reason { ": " span class="reason" { (Foreign(reason)) } }
    }
}

fn recent(state: &State, view: &View) -> Markup {
    let of_groups = state.groups.iter().flat_map(|it| it.history.iter().map(|entry| (it.id.as_str(), entry)));
    let of_others = state.left_out.iter().flat_map(|it| it.history.iter().map(|entry| (it.id.as_str(), entry)));
    let mut all: Vec<_> = of_groups.chain(of_others).collect();
    all.sort_by(|(a, of_a), (b, of_b)| of_b.last.cmp(&of_a.last).then(a.cmp(b)));
    let now = Now(state.head.taken_at);
    html! {
        @if !all.is_empty() {
            section aria-label="Recent writes and refusals" {
                h2 { "Recent writes and refusals" }
                (table("folds rows", &["Node group", "When", "How it ended", "What"], &html! {
                    @for (id, entry) in all.iter().take(RECENT) { tr role="row" {
                        th role="rowheader" scope="row" { (group_link(id, view)) }
                        (cell("When", "few plain", &now.ago(entry.last)))
                        (cell("How it ended", "few plain", &outcome(entry.outcome)))
                        (cell("What", "states", &html! {
                            (entry.what) @if entry.times > 1 { " " (entry.times) " times" }
                            " " span class="aside reason" title=(Foreign(&entry.text)) { (Foreign(&entry.text)) }
                        }))
                    } }
                }))
            }
        }
    }
}

fn group_link(id: &str, view: &View) -> Markup {
    let key = id.split_once('/').map_or(id, |(_, key)| key);
    html! { a href={ (path_of(id)) (view.below().query()) } { (self::id(key)) } }
}

fn groups(state: &State, listing: &Listing<'_>, named: &[String], view: &View) -> Markup {
    html! {
        section aria-label="Node groups" {
            h2 { "Groups" }
            p { (state.groups.len()) " served, " (state.machines) " Machines, " (state.nodes) " Nodes" }
            ul class="counts" aria-label="Groups by state" {
                @for (condition, count) in listing.counts.iter().filter(|(_, count)| *count > 0) {
                    li {
                        a href={ "/" (view.home().showing(Filter::Only(*condition)).query()) } { (badge(*condition)) }
                        " " (count)
                    }
                }
            }
            (form(view))
            @if !named.is_empty() {
                p {
                    "Machine, Node or instance " code { (Foreign(&view.text)) } " of "
                    @for (at, id) in named.iter().enumerate() { @if at > 0 { ", " } (group_link(id, view)) }
                }
            }
            @if listing.rows.is_empty() {
                p { "Nothing to show." @if *view != view.below() { " " a href={ "/" (view.below().query()) } { "Show all node groups" } } }
            } @else {
                (found(listing.found, listing.page, listing.pages))
                (group_table(&listing.rows, view))
                (pager(listing.page, listing.pages, "/", view))
            }
        }
    }
}

fn form(view: &View) -> Markup {
    html! {
        form method="get" action="/" role="search" {
            @if let Some(cluster) = &view.cluster { input type="hidden" name="cluster" value=(cluster); }
            label { "Name, Cluster, Machine, Node or providerID" input type="search" name="q" value=(view.text) maxlength="600"; }
            label { "State"
                select name="state" {
                    @for filter in Filter::all() { option value=(filter.as_str()) selected[view.filter == filter] { (filter.title()) } }
                }
            }
            @if let Some(sort) = view.sort() { input type="hidden" name="sort" value=(sort); }
            @if let Some(seconds) = view.refresh { input type="hidden" name="refresh" value=(seconds); }
            button type="submit" { "Show" }
        }
    }
}

fn group_table(rows: &[Row<'_>], view: &View) -> Markup {
    let first = rows.first().map(|row| row.object.cluster());
    let has_clusters = rows.iter().any(|row| Some(row.object.cluster()) != first);
    html! {
        table role="table" class="folds groups rows sorts" {
            thead role="rowgroup" { tr role="row" {
                @for order in Order::ALL {
                    (heading(order, view))
                    @if order == Order::Kind && has_clusters { th role="columnheader" scope="col" { "Cluster" } }
                }
            } }
            tbody role="rowgroup" { @for row in rows { tr role="row" { (row_of(row, view, has_clusters)) } } }
        }
    }
}

/// Renders the heading of a column, a link to the rows in its order.
fn heading(order: Order, view: &View) -> Markup {
    let ascends = (order == view.order).then(|| order.ascends() != view.reversed);
    let sorted = ascends.map(|ascends| if ascends { "ascending" } else { "descending" });
    html! {
        th role="columnheader" scope="col" aria-sort=[sorted] {
            a href={ "/" (view.sorted(order).query()) } { (order.heading()) }
            @if let Some(ascends) = ascends { span aria-hidden="true" { @if ascends { " ▲" } @else { " ▼" } } }
        }
    }
}

fn row_of(row: &Row<'_>, view: &View, has_clusters: bool) -> Markup {
    let object = row.object;
    html! {
        th role="rowheader" scope="row" { (group_link(object.id(), view)) }
        (cell("Kind", "kind", &kind(object.kind())))
        @if has_clusters { (cell("Cluster", "", &Foreign(object.cluster()))) }
        @match object {
            Object::Group(group) => { (cell("State", "states", &states(row))) (sizes(group)) }
            Object::LeftOut(_) => td role="cell" class="states" data-heading="State" colspan="8" { (states(row)) }
        }
    }
}

/// Renders a kind by its short name, as kubectl has it.
fn kind(kind: &str) -> Markup {
    let short = match kind {
        "MachineDeployment" => "MD",
        "MachineSet" => "MS",
        "MachinePool" => "MP",
        other => other,
    };
    html! { abbr title=(kind) { (short) } }
}

/// Renders the conditions and the reason of the first one. A narrow column cuts the reason: it has a tooltip, and stands
/// on the page of the object.
fn states(row: &Row<'_>) -> Markup {
    html! {
        @for condition in &row.conditions { (badge(*condition)) " " }
        @if let Some(why) = why(row) { span class="aside reason" title=(Foreign(&why)) { (Foreign(&why)) } }
    }
}

fn why(row: &Row<'_>) -> Option<String> {
    let first = |problems: &[Problem]| {
        let problem = problems.first()?;
        let more = if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
        Some(format!("{}{more}", problem.message))
    };
    match row.object {
        Object::Group(group) => first(&group.problems)
            .or_else(|| {
                let last = group.history.first().filter(|_| row.conditions.contains(&Condition::Refused));
                last.map(|last| last.text.clone())
            })
            .or_else(|| group.rollout.as_ref().map(|rollout| rollout.message.clone())),
        Object::LeftOut(object) => Some(match first(&object.problems) {
            Some(problem) => format!("{}: {problem}", object.message),
            None => object.message.clone(),
        }),
    }
}

fn sizes(group: &Group) -> Markup {
    let counts = &group.counts;
    html! {
        (cell("Size", "size", &html! { (bar(group)) span class="number" { (group.size) } }))
        (cell("Min", "number few", &group.min_size))
        (cell("Max", "number few", &group.max_size))
        @for (heading, count) in [
            ("Running", counts.running), ("Creating", counts.creating),
            ("Deleting", counts.deleting), ("Failed", counts.failed),
        ] {
            (cell(heading, if count == 0 { "number few none" } else { "number few" }, &count))
        }
    }
}

pub(super) fn pager(page: usize, pages: usize, path: &str, view: &View) -> Markup {
    let link = |to: usize, text: &str| html! { a href={ (path) (view.on_page(to).query()) } { (text) } };
    html! {
        @if pages > 1 {
            nav aria-label="Pages" class="pager" {
                @if page > 1 { (link(1, "« first")) " " (link(page - 1, "‹ previous")) }
                span { "page " (page) " of " (pages) }
                @if page < pages { (link(page + 1, "next ›")) " " (link(pages, "last »")) }
            }
        }
    }
}
