//! Which page a path and a query choose.

use maud::{Markup, html};
use rules::GroupId;

use super::{
    clusters, group, overview,
    shell::{Foreign, Page},
    view::View,
};
use crate::state::{Head, Source, StateSource};
use service::listen::{AdminPages, CLUSTERS_PATH, DebugError, StatusAnswer};

const STYLE: &str = include_str!("style.css");

/// The pages of the only workload cluster, or those of a fleet and of each of its Clusters.
impl AdminPages for Source {
    fn state(&self, query: &str) -> Result<Vec<u8>, DebugError> {
        self.debug_state(query)
    }

    fn clusters(&self) -> Result<Vec<u8>, DebugError> {
        Ok(serde_json::to_vec(&self.read())?)
    }

    fn page(&self, path: &str, query: &str) -> StatusAnswer {
        let wrong = |why: &str| StatusAnswer::Wrong(notice(&self.head(), "Not understood", why));
        let view = match View::parse(query) {
            Ok(view) => view,
            Err(why) => return wrong(&why.to_string()),
        };
        let is_one = self.is_one();
        let chosen = match (&view.cluster, path) {
            (Some(_), _) if is_one => {
                return wrong("this server serves one workload cluster, not a fleet: leave cluster out");
            }
            (Some(cluster), _) => self.of(cluster),
            (None, "/") if !is_one => {
                return StatusAnswer::Found(clusters::clusters(&self.read(), &view).into_string());
            }
            (None, _) => self.only().ok_or_else(|| {
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
            Err(why) => StatusAnswer::Missing(notice(&self.head(), "Not here", &why)),
        }
    }

    fn style(&self) -> &'static str {
        STYLE
    }
}

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
