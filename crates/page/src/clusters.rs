//! The first page of a fleet: its Clusters, those in need first, each with a link to the page of its node groups.

use maud::{Markup, html};

use super::{
    overview::{informers, pager},
    parts::{Now, Severity, span},
    shell::{Foreign, Page, cell, found, labelled, standing, table},
    view::{ROWS, View},
};
use crate::state::{Client, ClusterCondition, ClusterRow, DeniedCaller, FleetState};
use service::listen::CLUSTERS_PATH;

pub(super) fn clusters(fleet: &FleetState, view: &View) -> Markup {
    let all = fleet.in_need_first();
    let wrong = all.iter().filter(|row| severity(first(row)) == Severity::Bad).count();
    let title = match (fleet.head.ready, wrong) {
        (false, _) => "Not in sync – Clusters".to_owned(),
        (true, 0) => "Clusters".to_owned(),
        (true, wrong) => format!("{wrong} to look at – Clusters"),
    };
    let page = Page { title: &title, path: "/", view, head: &fleet.head, debug: CLUSTERS_PATH };
    page.around(&html! {
        h1 { "Clusters" }
        section class="standing" aria-label="At a glance" { (standing(&fleet.head, fleet.tls.as_ref())) }
        (listing(&all, view, Now(fleet.head.taken_at)))
        @if !fleet.denied.is_empty() { (denied(&fleet.denied)) }
        section aria-label="Management cluster" {
            h2 { "Management cluster" }
            (informers(&fleet.informers))
        }
    })
}

fn listing(all: &[ClusterRow<'_>], view: &View, now: Now) -> Markup {
    let text = view.text.to_lowercase();
    let rows: Vec<_> = all.iter().filter(|(cluster, _)| cluster.id().to_lowercase().contains(&text)).collect();
    let pages = rows.len().div_ceil(ROWS).max(1);
    let page = view.page.min(pages);
    html! {
        section aria-label="Clusters" {
            ul class="counts" aria-label="Clusters by state" {
                @for (condition, count) in counts(all) { li { (badge(condition)) " " (count) } }
            }
            @if all.iter().any(|row| first(row) == ClusterCondition::NotCalled) {
                p class="aside" { "Clusters that are not called here may call another replica: look at its page too." }
            }
            form method="get" action="/" role="search" {
                label { "Namespace or name" input type="search" name="q" value=(view.text) maxlength="600"; }
                @if let Some(seconds) = view.refresh { input type="hidden" name="refresh" value=(seconds); }
                button type="submit" { "Show" }
            }
            @if rows.is_empty() {
                p { "Nothing to show." @if *view != View::default() { " " a href="/" { "Show all Clusters" } } }
            } @else {
                (found(rows.len(), page, pages))
                (cluster_table(rows.into_iter().skip((page - 1) * ROWS).take(ROWS), view, now))
                (pager(page, pages, "/", view))
            }
        }
    }
}

/// Returns the number of Clusters by their most urgent condition.
fn counts(all: &[ClusterRow<'_>]) -> Vec<(ClusterCondition, usize)> {
    let mut counts: Vec<(ClusterCondition, usize)> = Vec::new();
    // They are sorted by that condition.
    for row in all {
        match counts.last_mut() {
            Some((condition, count)) if *condition == first(row) => *count += 1,
            Some(_) | None => counts.push((first(row), 1)),
        }
    }
    counts
}

fn cluster_table<'a>(rows: impl Iterator<Item = &'a ClusterRow<'a>>, view: &View, now: Now) -> Markup {
    let headings = ["Cluster", "State", "Refresh", "Node groups", "Problems", "Machines", "Nodes", "Caller"];
    table("folds groups", &headings, &html! { @for row in rows { tr role="row" { (row_of(row, view, now)) } } })
}

fn row_of((cluster, conditions): &ClusterRow<'_>, view: &View, now: Now) -> Markup {
    let id = cluster.id();
    let refresh =
        cluster.calls.last_refresh_ago.map_or_else(|| "never here".to_owned(), |ago| format!("{} ago", span(ago)));
    html! {
        th role="rowheader" scope="row" {
            a href={ "/" (view.of_cluster(id.clone()).query()) } { (Foreign(&id)) }
        }
        (cell("State", "states", &html! {
            @for condition in conditions { (badge(*condition)) " " }
            @if let Some(why) = cluster.why() {
                div class="aside reason" { (Foreign(why)) }
            }
            @if cluster.denied_calls > 0 { div class="aside" { (cluster.denied_calls) " calls denied" } }
            @if cluster.foreign_group_calls > 0 {
                div class="aside" { (cluster.foreign_group_calls) " calls for node groups of other Clusters" }
            }
        }))
        (cell("Refresh", "number", &refresh))
        @for (heading, count) in [
            ("Node groups", cluster.groups), ("Problems", cluster.problems), ("Machines", cluster.machines),
            ("Nodes", cluster.nodes),
        ] {
            (cell(heading, if count == 0 { "number few none" } else { "number few" }, &count))
        }
        (cell("Caller", "", &html! { @for caller in &cluster.callers { div { (caller_of(caller, now)) } } }))
    }
}

/// Renders the callers that were denied lately, whose Clusters may not be among those above.
fn denied(callers: &[DeniedCaller]) -> Markup {
    html! {
        section aria-label="Denied callers" {
            h2 { "Denied callers" }
            (table("folds", &["Caller", "Last call", "Calls", "Address", "Reason"], &html! {
                @for caller in callers { tr role="row" {
                    th role="rowheader" scope="row" { (Foreign(&caller.identity)) }
                    (cell("Last call", "number", &format!("{} ago", span(caller.last_ago))))
                    (cell("Calls", "number", &caller.denied_calls))
                    (cell("Address", "", &html! { @if let Some(peer) = caller.peer { (peer) } }))
                    (cell("Reason", "", &Foreign(&caller.reason)))
                } }
            }))
        }
    }
}

fn caller_of(caller: &Client, now: Now) -> Markup {
    html! {
        @if let Some(peer) = caller.peer { (peer) }
        @if let Some(until) = caller.until { " certificate ends " (now.ago(until)) }
        @if let Some(serial) = &caller.serial { div class="aside" { code { (Foreign(serial)) } } }
    }
}

fn first((_, conditions): &ClusterRow<'_>) -> ClusterCondition {
    conditions.first().copied().unwrap_or(ClusterCondition::Well)
}

fn badge(condition: ClusterCondition) -> Markup {
    labelled(severity(condition), condition.title())
}

fn severity(condition: ClusterCondition) -> Severity {
    match condition {
        ClusterCondition::NotConnected
        | ClusterCondition::NotInSync
        | ClusterCondition::NodesNotInSync
        | ClusterCondition::Refused
        | ClusterCondition::CertificateExpired => Severity::Bad,
        ClusterCondition::UnexpectedCalls | ClusterCondition::CertificateEndsSoon | ClusterCondition::Problems => {
            Severity::Odd
        }
        ClusterCondition::NotCalled | ClusterCondition::Leaving => Severity::Quiet,
        ClusterCondition::Well => Severity::Good,
    }
}
