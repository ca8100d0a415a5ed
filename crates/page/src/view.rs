//! The requested view: the query of a URL, and the links that change one part of it.

use std::fmt;

use form_urlencoded::Serializer;
use rules::named_enum;

use super::parts::Condition;
use service::listen::STATE_PATH;

/// The number of rows per page.
pub(super) const ROWS: usize = 100;
/// The maximum and the minimum interval of refreshes, in seconds.
const SLOWEST_REFRESH: u32 = 3600;
const FASTEST_REFRESH: u32 = 2;
/// The maximum length of the text in the filter: no id is longer.
const LONGEST_TEXT: usize = 600;

/// The requested rows and page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct View {
    /// The filter: only rows whose id or Cluster contains this text, in any case.
    pub(super) text: String,
    pub(super) filter: Filter,
    pub(super) order: Order,
    /// True if the order is reversed.
    pub(super) reversed: bool,
    /// The page, from 1 on.
    pub(super) page: usize,
    /// The number of seconds after which the page is refreshed.
    pub(super) refresh: Option<u32>,
    /// The Cluster of a fleet, `<namespace>/<name>`; `None` for the page of all, and without a fleet.
    pub(super) cluster: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Filter {
    /// Node groups, and objects that are left out because of an error.
    #[default]
    Groups,
    /// All objects, including those that are left out on purpose.
    All,
    /// The rows with this condition.
    Only(Condition),
}

named_enum! {
    /// The order of the rows: each column of the table is one.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(super) enum Order {
        /// By namespace and name.
        Id = "id",
        /// By kind.
        Kind = "kind",
        /// The most urgent first.
        #[default]
        Urgency = "urgency",
        // The largest first.
        Size = "size",
        Min = "min",
        Max = "max",
        Running = "running",
        Creating = "creating",
        Deleting = "deleting",
        Failed = "failed",
    }
}

impl Order {
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Id => "Node group",
            Self::Kind => "Kind",
            Self::Urgency => "State",
            Self::Size => "Size",
            Self::Min => "Min",
            Self::Max => "Max",
            Self::Running => "Running",
            Self::Creating => "Creating",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }

    /// Returns true if the smallest comes first.
    pub(super) fn ascends(self) -> bool {
        matches!(self, Self::Id | Self::Kind | Self::Urgency)
    }
}

impl Filter {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::Groups, Self::All].into_iter().chain(Condition::ALL.into_iter().map(Self::Only))
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::All => "all",
            Self::Only(condition) => condition.as_str(),
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Groups => "node groups",
            Self::All => "all, also excluded on purpose",
            Self::Only(condition) => condition.title(),
        }
    }
}

impl Default for View {
    fn default() -> Self {
        Self {
            text: String::new(),
            filter: Filter::default(),
            order: Order::default(),
            reversed: false,
            page: 1,
            refresh: None,
            cluster: None,
        }
    }
}

/// The error of a query that can't be parsed: the wrong part, and the known values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct WrongQuery(String);

impl fmt::Display for WrongQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl View {
    /// Parses the query of a URL. The last value of each parameter counts. An empty value is the default, since forms
    /// send their empty fields too.
    pub(super) fn parse(query: &str) -> Result<Self, WrongQuery> {
        let mut view = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("q", text) => view.text = shortened(text.trim()),
                ("state", word) => view.filter = one_of(Filter::all(), Filter::as_str, &name, word)?,
                ("sort", word) => {
                    let order = word.strip_prefix('-');
                    view.reversed = order.is_some();
                    view.order = one_of(Order::ALL.into_iter(), Order::as_str, &name, order.unwrap_or(word))?;
                }
                ("page", "") => view.page = 1,
                ("page", number) => {
                    view.page = number
                        .parse()
                        .ok()
                        .filter(|page| *page > 0)
                        .ok_or_else(|| WrongQuery(format!("page is {value:?}: it must be a number from 1 on")))?;
                }
                ("cluster", "") => view.cluster = None,
                ("cluster", cluster) => view.cluster = Some(shortened(cluster)),
                ("refresh", "") => view.refresh = None,
                ("refresh", seconds) => view.refresh = Some(refresh(seconds)?),
                _ => {
                    return Err(WrongQuery(format!(
                        "parameter {name:?} isn't known: known are q, state, sort, page, refresh and cluster"
                    )));
                }
            }
        }
        Ok(view)
    }

    /// Returns the query that requests this view; empty for the default.
    pub(super) fn query(&self) -> String {
        let default = Self::default();
        let mut query = Serializer::new(String::new());
        if let Some(cluster) = &self.cluster {
            query.append_pair("cluster", cluster);
        }
        if self.text != default.text {
            query.append_pair("q", &self.text);
        }
        if self.filter != default.filter {
            query.append_pair("state", self.filter.as_str());
        }
        if let Some(sort) = self.sort() {
            query.append_pair("sort", &sort);
        }
        if self.page != default.page {
            query.append_pair("page", &self.page.to_string());
        }
        if let Some(seconds) = self.refresh {
            query.append_pair("refresh", &seconds.to_string());
        }
        let query = query.finish();
        if query.is_empty() { query } else { format!("?{query}") }
    }

    /// Returns the value of `sort`; `None` for the default.
    pub(super) fn sort(&self) -> Option<String> {
        let sign = if self.reversed { "-" } else { "" };
        let is_default = self.order == Order::default() && !self.reversed;
        (!is_default).then(|| format!("{sign}{}", self.order.as_str()))
    }

    /// Returns the view in another order, or in the reverse one if this is its order already.
    pub(super) fn sorted(&self, order: Order) -> Self {
        Self { order, reversed: order == self.order && !self.reversed, page: 1, ..self.clone() }
    }

    /// Returns the path of the debug state of this Cluster, or of one group of it.
    pub(super) fn debug_state(&self, group: Option<&str>) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(self.cluster.iter().map(|cluster| ("cluster", cluster)));
        query.extend_pairs(group.map(|group| ("group", group)));
        let query = query.finish();
        let sign = if query.is_empty() { "" } else { "?" };
        format!("{STATE_PATH}{sign}{query}")
    }

    pub(super) fn home(&self) -> Self {
        Self { refresh: self.refresh, cluster: self.cluster.clone(), ..Self::default() }
    }

    /// Returns the view of a page below: of the same Cluster, and nothing else.
    pub(super) fn below(&self) -> Self {
        Self { cluster: self.cluster.clone(), ..Self::default() }
    }

    /// Returns the view of all Clusters of the fleet, or of all rows without one.
    pub(super) fn top(&self) -> Self {
        Self { refresh: self.refresh, ..Self::default() }
    }

    pub(super) fn of_cluster(&self, cluster: String) -> Self {
        Self { cluster: Some(cluster), ..self.top() }
    }

    pub(super) fn on_page(&self, page: usize) -> Self {
        Self { page, ..self.clone() }
    }

    pub(super) fn with_refresh(&self, refresh: Option<u32>) -> Self {
        Self { refresh, ..self.clone() }
    }

    /// Returns the view of other rows, from their first page.
    pub(super) fn showing(&self, filter: Filter) -> Self {
        Self { filter, page: 1, ..self.clone() }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

fn one_of<T: Copy + Default>(
    all: impl Iterator<Item = T>,
    name_of: impl Fn(T) -> &'static str,
    parameter: &str,
    word: &str,
) -> Result<T, WrongQuery> {
    if word.is_empty() {
        return Ok(T::default());
    }
    let mut known = Vec::new();
    for one in all {
        if name_of(one) == word {
            return Ok(one);
        }
        known.push(name_of(one));
    }
    Err(WrongQuery(format!("{parameter} is {word:?}: it must be one of {}", known.join(", "))))
}

fn refresh(text: &str) -> Result<u32, WrongQuery> {
    let seconds = text.parse().ok().filter(|seconds| (FASTEST_REFRESH..=SLOWEST_REFRESH).contains(seconds));
    seconds.ok_or_else(|| {
        WrongQuery(format!(
            "refresh is {text:?}: it must be a number of seconds from {FASTEST_REFRESH} to {SLOWEST_REFRESH}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing("")]
    #[case::text("?q=team-a%2Fwork+er")]
    #[case::state("?state=problem")]
    #[case::all("?state=all")]
    #[case::sort("?sort=id")]
    #[case::reverse("?sort=-urgency")]
    #[case::page("?page=7")]
    #[case::refresh("?refresh=10")]
    #[case::cluster("?cluster=team-a%2Fstage&q=a")]
    #[case::everything("?q=a&state=rolling-out&sort=size&page=2&refresh=60")]
    fn a_view_and_its_query_are_the_same(#[case] query: &str) {
        assert_eq!(View::parse(query.trim_start_matches('?')).unwrap().query(), query);
    }

    #[test]
    fn empty_form_fields_parse_as_the_default_view() {
        assert_eq!(View::parse("q=&state=&sort=&page=&refresh=&cluster=").unwrap(), View::default());
    }

    #[rstest]
    #[case("state=bad", "state is \"bad\": it must be one of groups, all, left-out, ")]
    #[case("sort=up", "sort is \"up\": it must be one of id, kind, urgency, size, min")]
    #[case("page=0", "page is \"0\": it must be a number from 1 on")]
    #[case("page=-1", "page is \"-1\"")]
    #[case("refresh=0", "refresh is \"0\": it must be a number of seconds from 2 to 3600")]
    #[case("refresh=1e9", "refresh is \"1e9\"")]
    #[case("script=1", "parameter \"script\" isn't known: known are q, state, sort, page, refresh and cluster")]
    fn an_invalid_query_parameter_is_an_error_that_names_the_parameter(#[case] query: &str, #[case] expected: &str) {
        let error = View::parse(query).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
