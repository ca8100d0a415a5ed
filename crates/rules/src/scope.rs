//! The scope: the objects that this program manages, in Cluster Autoscaler's own `--node-group-auto-discovery` syntax
//! for Cluster API, which may be repeated. An object is in scope if one of the specs matches it.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::capi::ScalableResource;
use thiserror::Error;

use super::labels;

/// The discoverer's name, before the colon.
const DISCOVERER: &str = "clusterapi";

/// One `clusterapi:namespace=NS,clusterName=NAME,label=value,…`. It matches by the parts that it names; an empty
/// namespace or cluster name counts as not named, as in Cluster Autoscaler.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ScopeSpec {
    /// The namespace of the objects.
    pub namespace: Option<String>,
    /// The name of their Cluster.
    pub cluster_name: Option<String>,
    /// The labels that the objects have, all of them.
    pub labels: Vec<(String, String)>,
}

/// All specs together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All objects, because the operator chose so.
    All,
    /// The objects that one of these matches; an empty list matches none.
    Specs(Vec<ScopeSpec>),
}

/// The reason why a text is no spec. It is fatal, since a guess could scale another cluster's groups.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "node group auto-discovery {spec:?}: {item:?} {what}; the syntax is clusterapi:namespace=NS,clusterName=NAME,label=value"
)]
pub struct ScopeError {
    spec: String,
    item: String,
    what: &'static str,
}

impl ScopeSpec {
    /// Returns the spec for the groups of one Cluster.
    pub fn cluster(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), cluster_name: Some(name.into()), labels: Vec::new() }
    }

    /// Returns true if the object has the namespace, the Cluster and the labels of the spec.
    pub fn matches(&self, object: &ScalableResource) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| *namespace == *object.meta.key.namespace)
            && self.cluster_name.as_deref().is_none_or(|name| *name == *object.cluster_name)
            && self.labels.iter().all(|(key, value)| object.labels.get(key.as_str()).is_some_and(|is| **is == **value))
    }
}

impl FromStr for ScopeSpec {
    type Err = ScopeError;

    fn from_str(spec: &str) -> Result<Self, ScopeError> {
        let error = |item: &str, what| ScopeError { spec: spec.to_owned(), item: item.to_owned(), what };
        let (discoverer, items) =
            spec.split_once(':').ok_or_else(|| error(spec, "has no colon after the discoverer's name"))?;
        if discoverer != DISCOVERER {
            return Err(error(discoverer, "is no discoverer known here"));
        }
        if items.contains(':') {
            return Err(error(items, "has a colon too many"));
        }
        let mut parsed = Self::default();
        for item in items.split(',').filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| error(item, "has no equals sign"))?;
            if value.contains('=') {
                return Err(error(item, "has an equals sign too many"));
            }
            let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
            match key {
                "namespace" => parsed.namespace = text(),
                "clusterName" => parsed.cluster_name = text(),
                _ => {
                    labels::check_key(key).map_err(|_| error(item, "has no valid label key"))?;
                    labels::check_value(value).map_err(|_| error(item, "has no valid label value"))?;
                    parsed.labels.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        Ok(parsed)
    }
}

/// Writes the spec so that it can be parsed again.
impl fmt::Display for ScopeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("namespace", &self.namespace), ("clusterName", &self.cluster_name)];
        let named = named.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let labels = self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        write!(f, "{DISCOVERER}:")?;
        for (index, (key, value)) in named.chain(labels).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

impl Scope {
    /// Returns true if the object is in scope.
    pub fn matches(&self, object: &ScalableResource) -> bool {
        match self {
            Self::All => true,
            Self::Specs(specs) => specs.iter().any(|spec| spec.matches(object)),
        }
    }

    /// Returns the namespaces to watch: those of all specs, or `None` for all namespaces if a spec names none.
    /// Cluster Autoscaler's own provider watches only the first one.
    pub fn namespaces(&self) -> Option<BTreeSet<String>> {
        match self {
            Self::All => None,
            Self::Specs(specs) => specs.iter().map(|spec| spec.namespace.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::deployment;

    fn spec(namespace: Option<&str>, cluster_name: Option<&str>, labels: &[(&str, &str)]) -> ScopeSpec {
        ScopeSpec {
            namespace: namespace.map(str::to_owned),
            cluster_name: cluster_name.map(str::to_owned),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[rstest]
    #[case::nothing_named("clusterapi:", spec(None, None, &[]))]
    #[case::namespace("clusterapi:namespace=team-a", spec(Some("team-a"), None, &[]))]
    #[case::cluster_name("clusterapi:clusterName=prod", spec(None, Some("prod"), &[]))]
    #[case::all_three("clusterapi:namespace=a,clusterName=b,tier=web", spec(Some("a"), Some("b"), &[("tier", "web")]))]
    #[case::any_order("clusterapi:tier=web,clusterName=b", spec(None, Some("b"), &[("tier", "web")]))]
    #[case::empty_items_are_skipped("clusterapi:,namespace=a,,x=y,", spec(Some("a"), None, &[("x", "y")]))]
    #[case::an_empty_namespace_is_not_named("clusterapi:namespace=,clusterName=b", spec(None, Some("b"), &[]))]
    #[case::a_label_may_be_empty("clusterapi:x=", spec(None, None, &[("x", "")]))]
    #[case::the_last_namespace_counts("clusterapi:namespace=a,namespace=b", spec(Some("b"), None, &[]))]
    fn a_spec_is_read(#[case] text: &str, #[case] expected: ScopeSpec) {
        assert_eq!(text.parse(), Ok(expected));
    }

    #[rstest]
    #[case::no_colon("clusterapi", "\"clusterapi\" has no colon")]
    #[case::empty("", "has no colon")]
    #[case::two_colons("clusterapi:namespace=a:b", "\"namespace=a:b\" has a colon too many")]
    #[case::another_discoverer("asg:tag=a", "\"asg\" is no discoverer")]
    #[case::no_equals_sign("clusterapi:namespace", "\"namespace\" has no equals sign")]
    #[case::two_equals_signs("clusterapi:a=b=c", "\"a=b=c\" has an equals sign too many")]
    #[case::no_label_key("clusterapi:=b", "\"=b\" has no valid label key")]
    #[case::space("clusterapi:namespace=a, clusterName=b", "\" clusterName=b\" has no valid label key")]
    #[case::no_label_value("clusterapi:a=b c", "\"a=b c\" has no valid label value")]
    fn anything_else_names_the_item_and_the_syntax(#[case] text: &str, #[case] part: &str) {
        let message = text.parse::<ScopeSpec>().unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(message.contains("the syntax is clusterapi:namespace=NS,clusterName=NAME,label=value"), "{message}");
    }

    #[rstest]
    #[case::all_fit("clusterapi:namespace=team-a,clusterName=prod,tier=web", true)]
    #[case::nothing_named("clusterapi:", true)]
    #[case::another_namespace("clusterapi:namespace=team-b", false)]
    #[case::another_cluster("clusterapi:clusterName=stage", false)]
    #[case::another_label_value("clusterapi:tier=db", false)]
    #[case::a_label_it_lacks("clusterapi:zone=a", false)]
    #[case::one_of_two_labels("clusterapi:tier=web,zone=a", false)]
    #[case::two_values_of_one_label("clusterapi:tier=web,tier=db", false)]
    fn namespace_cluster_and_all_labels_must_fit(#[case] text: &str, #[case] expected: bool) {
        let mut object = deployment("workers");
        object.labels.insert("tier".into(), "web".into());
        assert_eq!(Scope::Specs(vec![text.parse().unwrap()]).matches(&object), expected);
    }

    #[test]
    fn one_of_several_specs_is_enough() {
        let object = deployment("workers");
        let (fits, other) = (ScopeSpec::cluster("team-a", "prod"), ScopeSpec::cluster("team-b", "prod"));
        assert!(Scope::Specs(vec![other.clone(), fits]).matches(&object));
        assert!(!Scope::Specs(vec![other]).matches(&object));
        assert!(!Scope::Specs(Vec::new()).matches(&object));
        assert!(Scope::All.matches(&object));
    }

    #[test]
    fn every_namespace_that_is_named_is_watched() {
        let (a, b) = (ScopeSpec::cluster("a", "x"), ScopeSpec::cluster("b", "y"));
        let both = Scope::Specs(vec![a.clone(), b]).namespaces();
        assert_eq!(both, Some(BTreeSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(Scope::Specs(vec![a, ScopeSpec::default()]).namespaces(), None);
        assert_eq!(Scope::All.namespaces(), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(clusterapi:)?[a-zA-Z=,:/ä ]{0,40}") {
            let _ = text.parse::<ScopeSpec>();
        }

        #[test]
        fn a_spec_is_read_as_it_is_printed(text in "clusterapi:(namespace=[a-z]{0,3},)?(clusterName=[a-z]{1,3},)?([a-z]{1,3}=[a-z]{0,3},){0,3}") {
            let spec: ScopeSpec = text.parse().unwrap();
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
