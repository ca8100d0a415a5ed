//! Provider ids. Whole ids are compared first; the part after the last slash is a fallback for ids that differ in
//! form between Machine and Node. The index compares them.

/// Returns the part of a provider id after the last `/`. `None` if comparing it alone would be wrong: for Azure scale
/// sets, whose ids end in a number that every set has, and if nothing follows.
pub fn tail(id: &str) -> Option<&str> {
    if is_azure_scale_set(id) {
        return None;
    }
    let tail = id.rsplit_once('/').map_or(id, |(_, tail)| tail);
    (!tail.is_empty()).then_some(tail)
}

/// Returns true if two provider ids differ in case and in the number of slashes at most: such as `azure:///…` and
/// `azure:////…`, which providers and cloud controllers have written for one instance.
pub fn is_same_in_form(a: &str, b: &str) -> bool {
    characters(a).eq(characters(b))
}

/// Returns a provider id in the form that all ids have in common which are the same [in form](is_same_in_form): in lower
/// case, with one slash for each row of them.
pub fn plain(id: &str) -> String {
    characters(id).collect()
}

fn characters(id: &str) -> impl Iterator<Item = char> {
    let mut last = None;
    let is_kept = move |character: &char| last.replace(*character) != Some('/') || *character != '/';
    id.chars().filter(is_kept).map(|character| character.to_ascii_lowercase())
}

/// The comparison ignores case, because Azure isn't consistent about it.
fn is_azure_scale_set(id: &str) -> bool {
    const SCALE_SETS: &str = "/virtualmachinescalesets/";
    let starts_with = |text: &str| id.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    starts_with("azure:")
        && id.as_bytes().windows(SCALE_SETS.len()).any(|part| part.eq_ignore_ascii_case(SCALE_SETS.as_bytes()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::slashes("azure:///subscriptions/s/x/vm-0", "azure:////subscriptions/s/x/vm-0", true)]
    #[case::case("azure:///subscriptions/s/resourceGroups/G", "azure:///subscriptions/s/resourcegroups/g", true)]
    #[case::equal("x:///a", "x:///a", true)]
    #[case::another_instance("x:///a", "x:///b", false)]
    #[case::another_zone("x:///zone-a/i", "x:///zone-b/i", false)]
    #[case::a_longer_one("x:///a", "x:///a/", false)]
    #[case::a_slash_less("x:///ab", "x:///a/b", false)]
    #[case::empty("", "x", false)]
    fn ids_are_the_same_in_another_form(#[case] a: &str, #[case] b: &str, #[case] expected: bool) {
        assert_eq!((is_same_in_form(a, b), is_same_in_form(b, a)), (expected, expected));
    }

    #[rstest]
    #[case::aws("aws:///eu-central-1a/i-0123456789", Some("i-0123456789"))]
    #[case::in_memory("in-memory://worker-1", Some("worker-1"))]
    #[case::no_slash("worker-1", Some("worker-1"))]
    #[case::azure_machine(
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/worker-1",
        Some("worker-1")
    )]
    #[case::azure_scale_set(
        "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/0",
        None
    )]
    #[case::azure_scale_set_in_lower_case(
        "azure:///subscriptions/s/resourcegroups/g/providers/microsoft.compute/virtualmachinescalesets/set/virtualmachines/0",
        None
    )]
    #[case::another_cloud_may_use_the_words("gce://project/virtualMachineScaleSets/worker-1", Some("worker-1"))]
    #[case::nothing_after_the_slash("aws:///", None)]
    #[case::empty("", None)]
    fn the_tail_of_a_provider_id_follows_its_last_slash_except_in_azure_scale_sets(
        #[case] id: &str,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(tail(id), expected);
    }
}
