//! The status page for a person on call. Pages are pure functions of the state that `/debug/state` and
//! `/debug/clusters` show and of the report of `explain`; every text of a cluster is escaped, and there is no script.
//! This crate must implement no rule, query no API server, and change nothing.

mod bar;
mod condition;
mod fleet;
mod group;
mod listing;
mod moment;
mod overview;
mod shell;
pub mod state;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use maud::{Markup, html};
use nodegroup::GroupId;

use self::{
    shell::{Foreign, Page},
    view::View,
};
use crate::state::{FleetState, FleetStateSource, State, StateSource};
use server::{STYLE_PATH, StatusAnswer, StatusPages};

/// The style sheet of all pages.
const STYLE: &str = include_str!("style.css");

/// Renders the pages of a state source.
#[derive(Clone)]
pub struct StatusPage {
    source: Arc<StateSource>,
}

/// Renders the pages of a fleet, and those of each of its Clusters.
#[derive(Clone)]
pub struct FleetPage {
    source: Arc<FleetStateSource>,
}

impl StatusPage {
    /// Returns the pages of a state source.
    #[must_use]
    pub fn new(source: Arc<StateSource>) -> Self {
        Self { source }
    }
}

impl FleetPage {
    /// Returns the pages of a fleet.
    #[must_use]
    pub fn new(source: Arc<FleetStateSource>) -> Self {
        Self { source }
    }

    /// Returns a state without any Cluster, for pages that show none.
    fn bare(&self) -> State {
        let FleetState { program, taken_at, .. } = self.source.read_bare();
        State { program, taken_at, ..State::default() }
    }
}

impl StatusPages for StatusPage {
    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        let bare = || self.source.read_bare();
        match View::parse(query) {
            Err(wrong) => StatusAnswer::Wrong(notice(&bare(), "Not understood", &wrong.to_string())),
            Ok(View { cluster: Some(_), .. }) => {
                let why = "this server serves one workload cluster, not a fleet: leave cluster out";
                StatusAnswer::Wrong(notice(&bare(), "Not understood", why))
            }
            Ok(view) => page_of(&self.source, path, &view),
        }
    }

    fn style(&self) -> &'static str {
        STYLE
    }
}

impl StatusPages for FleetPage {
    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        let view = match View::parse(query) {
            Ok(view) => view,
            Err(wrong) => return StatusAnswer::Wrong(notice(&self.bare(), "Not understood", &wrong.to_string())),
        };
        match (&view.cluster, path) {
            (Some(cluster), _) => match self.source.of(cluster) {
                Ok(source) => page_of(&source, path, &view),
                Err(why) => StatusAnswer::Missing(notice(&self.bare(), "Not here", &why)),
            },
            (None, "/") => StatusAnswer::Found(fleet::clusters(&self.source.read(), &view).into_string()),
            (None, _) => {
                let why = format!(
                    "nothing is known of {path:?}: a page of a node group is \
                     /groups/<Kind>/<namespace>/<name>?cluster=<namespace>/<name>"
                );
                StatusAnswer::Missing(notice(&self.bare(), "Not here", &why))
            }
        }
    }

    fn style(&self) -> &'static str {
        STYLE
    }
}

/// Returns a page of a cluster.
fn page_of(source: &StateSource, path: &str, view: &View) -> StatusAnswer {
    let found =
        if path == "/" { Some(overview::overview(&source.read_rows(), view)) } else { group_of(source, path, view) };
    match found {
        Some(page) => StatusAnswer::Found(page.into_string()),
        None => StatusAnswer::Missing(notice(
            &source.read_bare(),
            "Not here",
            &format!("nothing is known of {path:?}: a page of a node group is /groups/<Kind>/<namespace>/<name>"),
        )),
    }
}

fn group_of(source: &StateSource, path: &str, view: &View) -> Option<Markup> {
    let id = GroupId::parse(path.strip_prefix("/groups/")?)?;
    let (state, reported) = source.read_group(&id);
    group::group(&state, reported.as_ref(), view)
}

/// Renders a page that only shows a text.
fn notice(state: &State, title: &str, text: &str) -> String {
    let page = Page { title, path: "/", view: &View::default(), state };
    let content = html! {
        h1 { (title) }
        p class="reason" { (Foreign(text)) }
        p { a href="/" { "‹ the first page" } }
    };
    page.around(&content).into_string()
}
