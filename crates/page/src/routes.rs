//! Which page a path and a query choose.

use std::sync::Arc;

use maud::{Markup, html};
use rules::GroupId;

use super::{
    clusters, group, overview,
    shell::{Foreign, Page},
    view::View,
};
use crate::state::{Head, Source, StateSource};
use service::listen::{CLUSTERS_PATH, StatusAnswer, StatusPages};

/// The style sheet of all pages.
const STYLE: &str = include_str!("style.css");

/// Renders the pages of a source: those of the only workload cluster, or those of a fleet and of each of its Clusters.
#[derive(Clone)]
pub struct StatusPage {
    source: Arc<Source>,
}

impl StatusPage {
    /// Returns the pages of a source.
    #[must_use]
    pub fn new(source: Arc<Source>) -> Self {
        Self { source }
    }

    fn wrong(&self, why: &str) -> StatusAnswer {
        StatusAnswer::Wrong(notice(&self.source.head(), "Not understood", why))
    }

    fn missing(&self, why: &str) -> StatusAnswer {
        StatusAnswer::Missing(notice(&self.source.head(), "Not here", why))
    }
}

impl StatusPages for StatusPage {
    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        let view = match View::parse(query) {
            Ok(view) => view,
            Err(wrong) => return self.wrong(&wrong.to_string()),
        };
        let is_one = self.source.is_one();
        let chosen = match (&view.cluster, path) {
            (Some(_), _) if is_one => {
                return self.wrong("this server serves one workload cluster, not a fleet: leave cluster out");
            }
            (Some(cluster), _) => self.source.of(cluster),
            (None, "/") if !is_one => {
                return StatusAnswer::Found(clusters::clusters(&self.source.read(), &view).into_string());
            }
            (None, _) => self.source.only().ok_or_else(|| {
                format!(
                    "nothing is known of {path:?}: a page of a node group is \
                     /groups/<Kind>/<namespace>/<name>?cluster=<namespace>/<name>"
                )
            }),
        };
        let page = chosen.and_then(|source| {
            page_of(&source, path, &view).ok_or_else(|| {
                format!("nothing is known of {path:?}: a page of a node group is /groups/<Kind>/<namespace>/<name>")
            })
        });
        match page {
            Ok(page) => StatusAnswer::Found(page.into_string()),
            Err(why) => self.missing(&why),
        }
    }

    fn style(&self) -> &'static str {
        STYLE
    }
}

/// Returns a page of a cluster.
fn page_of(source: &StateSource, path: &str, view: &View) -> Option<Markup> {
    if path == "/" {
        let named = source.groups_of_name(&view.text);
        Some(overview::overview(&source.read_rows(), &named, view))
    } else {
        group_of(source, path, view)
    }
}

fn group_of(source: &StateSource, path: &str, view: &View) -> Option<Markup> {
    let id = GroupId::parse(path.strip_prefix("/groups/")?)?;
    let (state, reported) = source.read_group(&id);
    group::group(&state, reported.as_ref(), &source.past(&id), view)
}

/// Renders a page that only shows a text.
pub(super) fn notice(head: &Head, title: &str, text: &str) -> String {
    let page = Page { title, path: "/", view: &View::default(), head, debug: CLUSTERS_PATH };
    let content = html! {
        h1 { (title) }
        p class="reason" { (Foreign(text)) }
        p { a href="/" { "‹ the first page" } }
    };
    page.around(&content).into_string()
}
