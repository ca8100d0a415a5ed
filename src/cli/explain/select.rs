//! Selects the objects to explain: those that were named, or else every node group and every object that is left out
//! for an error.

use anyhow::bail;
use rules::GroupId;
use rules::capi::ScalableKind;

use crate::cli::printing::listed;

/// The objects to explain.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Selection {
    /// The ids as typed; an empty list selects all.
    pub(super) ids: Vec<String>,
    /// The only namespace, if one is given.
    pub(super) namespace: Option<String>,
    /// True if objects that are left out on purpose are explained too.
    pub(super) all: bool,
}

impl Selection {
    /// Returns, for each of `known` in order, true if it is selected.
    ///
    /// # Errors
    /// If one that was named doesn't exist.
    pub(super) fn chosen(&self, known: &[GroupId]) -> anyhow::Result<Vec<bool>> {
        let is_here = |id: &GroupId| self.namespace.as_deref().is_none_or(|namespace| *namespace == *id.key.namespace);
        for wanted in &self.ids {
            if !known.iter().any(|id| is_here(id) && is_named(wanted, id)) {
                bail!(self.unknown(wanted, known.iter().filter(|id| is_here(id))));
            }
        }
        let is_named = |id: &GroupId| self.ids.is_empty() || self.ids.iter().any(|wanted| is_named(wanted, id));
        Ok(known.iter().map(|id| is_here(id) && is_named(id)).collect())
    }

    /// Returns the error for an unknown id, which lists existing ones, the most similar first.
    fn unknown<'a>(&self, wanted: &str, known: impl Iterator<Item = &'a GroupId>) -> String {
        let mut known: Vec<_> = known.map(ToString::to_string).collect();
        let name = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
        known.sort_by_cached_key(|id| (strsim::damerau_levenshtein(&name(id), &name(wanted)), id.clone()));
        let place = self.namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let there_is = if known.is_empty() {
            format!("no MachineDeployment, MachineSet and MachinePool{place}")
        } else {
            listed(&known)
        };
        format!("no node group{place} is {wanted:?}: there is {there_is}")
    }

    /// Returns the namespaces of all selected objects, if they are known.
    pub(super) fn only_namespaces(&self) -> Option<Vec<String>> {
        if let Some(namespace) = &self.namespace {
            return Some(vec![namespace.clone()]);
        }
        // An id that has no namespace, or may have none, can be in any.
        let namespace = |wanted: &String| match wanted.split('/').collect::<Vec<_>>().as_slice() {
            [_, namespace, _] => Some((*namespace).to_owned()),
            [namespace, _] if kind(namespace).is_none() => Some((*namespace).to_owned()),
            _ => None,
        };
        if self.ids.is_empty() { None } else { self.ids.iter().map(namespace).collect() }
    }
}

/// Returns true if an id matches `kind/namespace/name`, `namespace/name`, `kind/name` or `name`.
fn is_named(wanted: &str, id: &GroupId) -> bool {
    let (namespace, name) = (id.key.namespace.as_str(), id.key.name.as_str());
    match wanted.split('/').collect::<Vec<_>>().as_slice() {
        [of, in_namespace, named] => kind(of) == Some(id.kind) && *in_namespace == namespace && *named == name,
        [first, named] => (*first == namespace || kind(first) == Some(id.kind)) && *named == name,
        [named] => *named == name,
        _ => false,
    }
}

/// Parses a kind as kubectl accepts it: in any case, in the plural, or short.
fn kind(text: &str) -> Option<ScalableKind> {
    let text = text.to_ascii_lowercase();
    let short = |kind| match kind {
        ScalableKind::MachineDeployment => "md",
        ScalableKind::MachineSet => "ms",
        ScalableKind::MachinePool => "mp",
    };
    let singular = text.strip_suffix('s').filter(|_| text.len() > 2).unwrap_or(&text);
    ScalableKind::ALL.into_iter().find(|kind| short(*kind) == text || kind.as_str().to_ascii_lowercase() == singular)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const KNOWN: [&str; 4] = [
        "MachineDeployment/team-a/workers",
        "MachineDeployment/team-b/workers",
        "MachinePool/team-a/gpus",
        "MachineSet/team-a/workers",
    ];

    fn known() -> Vec<GroupId> {
        KNOWN.iter().map(|id| GroupId::parse(id).unwrap()).collect()
    }

    fn selection(ids: &[&str], namespace: Option<&str>) -> Selection {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Selection { ids, namespace: namespace.map(str::to_owned), all: false }
    }

    #[rstest]
    #[case::everything(&[], None, &[true, true, true, true])]
    #[case::of_a_namespace(&[], Some("team-b"), &[false, true, false, false])]
    #[case::whole(&["MachineDeployment/team-a/workers"], None, &[true, false, false, false])]
    #[case::short_kind(&["md/team-b/workers"], None, &[false, true, false, false])]
    #[case::plural_as_kubectl_prints_it(&["machinedeployments/team-b/workers"], None, &[false, true, false, false])]
    #[case::without_the_kind(&["team-a/workers"], None, &[true, false, false, true])]
    #[case::kind_and_name(&["md/workers"], Some("team-a"), &[true, false, false, false])]
    #[case::name(&["workers"], Some("team-b"), &[false, true, false, false])]
    #[case::name_anywhere(&["gpus"], None, &[false, false, true, false])]
    #[case::several(&["gpus", "ms/team-a/workers"], None, &[false, false, true, true])]
    fn these_are_meant(#[case] ids: &[&str], #[case] namespace: Option<&str>, #[case] expected: &[bool]) {
        assert_eq!(selection(ids, namespace).chosen(&known()).unwrap(), expected);
    }

    #[rstest]
    #[case::name("worker", None, "there is MachineDeployment/team-a/workers, MachineDeployment/team-b/workers")]
    #[case::in_a_namespace("gpus", Some("team-b"), "no node group in namespace team-b is \"gpus\"")]
    #[case::nothing_there(
        "gpus",
        Some("team-c"),
        "there is no MachineDeployment, MachineSet and MachinePool in namespace"
    )]
    #[case::too_many_parts("a/b/c/d", None, "\"a/b/c/d\"")]
    #[case::another_kind("Deployment/team-a/workers", None, "there is MachineDeployment/team-a/workers")]
    fn an_unknown_node_group_id_is_an_error_that_names_it_or_the_existing_groups(
        #[case] id: &str,
        #[case] namespace: Option<&str>,
        #[case] part: &str,
    ) {
        let error = selection(&[id], namespace).chosen(&known()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn only_some_of_many_are_named() {
        let known: Vec<_> = (0..30).map(|n| GroupId::parse(&format!("MachineSet/a/n{n}")).unwrap()).collect();
        let error = selection(&["x"], None).chosen(&known).unwrap_err().to_string();
        assert!(error.contains("and 20 more"), "{error}");
    }

    #[rstest]
    #[case(&[], None, &[])]
    #[case(&["md/team-a/x", "team-b/y"], None, &["team-a", "team-b"])]
    #[case(&["md/team-a/x", "y"], None, &[])]
    #[case(&["md/x"], None, &[])]
    #[case(&["x"], Some("team-a"), &["team-a"])]
    fn only_namespaces_that_are_named_are_read_and_else_all(
        #[case] ids: &[&str],
        #[case] namespace: Option<&str>,
        #[case] expected: &[&str],
    ) {
        let expected: Vec<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(selection(ids, namespace).only_namespaces(), Some(expected).filter(|names| !names.is_empty()));
    }
}
