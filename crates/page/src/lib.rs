//! The status page for a person on call. Pages are pure functions of the state that `/debug/state` shows and of the
//! report of `explain`; every text of a cluster is escaped, and there is no script. This crate must implement no rule,
//! query no API server, and change nothing.

mod bar;
mod condition;
mod group;
mod listing;
mod moment;
mod overview;
mod shell;
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
use server::{STYLE_PATH, StatusAnswer, StatusPages};
use state::{State, StateSource};

/// Renders the pages of a state source.
#[derive(Clone)]
pub struct StatusPage {
    source: Arc<StateSource>,
}

impl StatusPage {
    /// Returns the pages of a state source.
    #[must_use]
    pub fn new(source: Arc<StateSource>) -> Self {
        Self { source }
    }

    fn of_group(&self, path: &str, view: &View) -> Option<Markup> {
        let id = GroupId::parse(path.strip_prefix("/groups/")?)?;
        let (state, reported) = self.source.read_group(&id);
        group::group(&state, reported.as_ref(), view)
    }
}

impl StatusPages for StatusPage {
    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        let view = match View::parse(query) {
            Ok(view) => view,
            Err(wrong) => return StatusAnswer::Wrong(notice(&self.bare(), "Not understood", &wrong.to_string())),
        };
        let found = if path == "/" {
            Some(overview::overview(&self.source.read_rows(), &view))
        } else {
            self.of_group(path, &view)
        };
        match found {
            Some(page) => StatusAnswer::Found(page.into_string()),
            None => StatusAnswer::Missing(notice(
                &self.bare(),
                "Not here",
                &format!("nothing is known of {path:?}: a page of a node group is /groups/<Kind>/<namespace>/<name>"),
            )),
        }
    }

    fn style(&self) -> &'static str {
        include_str!("style.css")
    }
}

impl StatusPage {
    /// Returns a state without any group, for pages that show none.
    fn bare(&self) -> State {
        self.source.read_bare()
    }
}

/// Renders a page that only shows a text.
fn notice(state: &State, title: &str, text: &str) -> String {
    let page = Page { title, path: "/", view: &View::default(), state };
    let content = html! {
        h1 { (title) }
        p class="reason" { (Foreign(text)) }
        p { a href="/" { "‹ all node groups" } }
    };
    page.around(&content).into_string()
}
