//! Lists of resources as text, `cpu=100m,memory=800Mi`. An invalid entry of an annotation is dropped and affects no
//! other; an invalid entry of a flag is an error.

use std::collections::BTreeMap;

use super::{Problem, ProblemKind, Quantity, SourcedMap, labels, problem::parse_list, quantity::Format};

/// The resource of processor cores.
pub const CPU: &str = "cpu";
/// The resource of memory, in bytes.
pub const MEMORY: &str = "memory";
/// The resource of local disk for pods, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// The resource of pods: the number that fit on a Node.
pub const PODS: &str = "pods";

/// The prefix of the resources of huge pages, in bytes; the size of a page follows.
pub const HUGE_PAGES: &str = "hugepages-";

/// Resources, each with its source.
pub type Capacity = SourcedMap<Quantity>;

/// Amounts of resources, by name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Parses the resources of an annotation. The last of equal names counts; an invalid entry is a problem. `allowed` checks
/// a resource further.
pub(super) fn parse(
    annotation: &str,
    text: &str,
    allowed: fn(&str, Quantity) -> Result<(), String>,
) -> (ResourceList, Vec<Problem>) {
    let parse = |entry: &str| {
        let (name, quantity) = parse_entry(entry)?;
        allowed(name, quantity)?;
        Ok::<_, String>((name.to_owned(), quantity))
    };
    let (resources, problems) = parse_list((ProblemKind::Capacity, annotation, "resources"), text, parse);
    (resources.into_iter().collect(), problems)
}

/// Parses the resources of a flag.
///
/// # Errors
/// The first invalid entry, and the violated rule.
pub fn parse_all(text: &str) -> Result<ResourceList, String> {
    entries(text)
        .map(|entry| {
            let (name, quantity) = parse_entry(entry).map_err(|rule| format!("entry {entry:?}: {rule}"))?;
            Ok((name.to_owned(), quantity))
        })
        .collect()
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
}

fn parse_entry(entry: &str) -> Result<(&str, Quantity), String> {
    let (name, text) = entry.split_once('=').ok_or("a resource is written name=quantity, such as memory=800Mi")?;
    labels::check_key(name).map_err(|rule| format!("a resource's name is like a label's key: {rule}"))?;
    let amount = quantity(text)?;
    match name {
        MEMORY | EPHEMERAL_STORAGE => check_unit(text, amount, LEAST_PART, "800Mi")?,
        _ => check_pages(name, amount)?,
    }
    Ok((name, amount))
}

/// The least amount of memory or disk of a whole Node that may be written without a unit. The kibibytes of a Node with
/// 128 GiB are fewer bytes.
const LEAST_WHOLE: Quantity = Quantity::from_units(256 << 20);

/// The least amount of memory or disk that is a part of a Node's and may be written without a unit.
const LEAST_PART: Quantity = Quantity::from_units(1 << 20);

/// Checks that an amount of bytes has a unit if it is too small for a number of bytes.
fn check_unit(text: &str, amount: Quantity, least: Quantity, example: &str) -> Result<(), String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    if has_unit || amount.is_zero() || amount >= least {
        return Ok(());
    }
    Err(format!("without a unit it is a number of bytes, and no Node has so few: write one, such as {example}"))
}

/// Checks that an amount of huge pages is a multiple of the size in its name.
fn check_pages(resource: &str, amount: Quantity) -> Result<(), String> {
    let page = resource.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok());
    match page.map(Quantity::value) {
        Some(bytes @ 1..) if amount.value() % bytes != 0 => Err(format!(
            "it is an amount in bytes, such as 1Gi, and must be a multiple of {}",
            resource.trim_start_matches(HUGE_PAGES),
        )),
        Some(_) | None => Ok(()),
    }
}

/// Parses the memory or disk of a whole Node.
///
/// # Errors
/// The rule that is broken.
pub(super) fn bytes_of_node(text: &str) -> Result<Quantity, String> {
    let amount = quantity(text)?;
    check_unit(text, amount, LEAST_WHOLE, "16Gi")?;
    Ok(amount)
}

/// Parses a number of devices.
///
/// # Errors
/// The rule that is broken.
pub(super) fn device_count(text: &str) -> Result<Quantity, String> {
    let count = whole_quantity(text)?;
    match count.format() {
        Format::BinarySi => Err("it is a number of devices, such as 2, and has no unit of bytes".to_owned()),
        Format::DecimalSi | Format::DecimalExponent => Ok(count),
    }
}

/// Parses a quantity that a resource can have.
///
/// # Errors
/// The rule that is broken.
pub(super) fn quantity(text: &str) -> Result<Quantity, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("it must be a Kubernetes quantity: {error}"))?;
    if quantity.is_negative() { Err("it must not be negative".to_owned()) } else { Ok(quantity) }
}

/// Parses a quantity of something indivisible.
///
/// # Errors
/// The rule that is broken.
pub(super) fn whole_quantity(text: &str) -> Result<Quantity, String> {
    let quantity = quantity(text)?;
    if quantity.is_whole() { Ok(quantity) } else { Err("it must be a whole number".to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::assert_names;

    fn shown(list: &ResourceList) -> Vec<String> {
        list.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect()
    }

    #[rstest]
    #[case::one("cpu=100m", &["cpu=100m"])]
    #[case::several("cpu=100m,memory=800Mi", &["cpu=100m", "memory=800Mi"])]
    #[case::extended("nvidia.com/gpu=2,hugepages-2Mi=1Gi", &["hugepages-2Mi=1Gi", "nvidia.com/gpu=2"])]
    #[case::none_of_it("cpu=0", &["cpu=0"])]
    #[case::the_last_of_equal_names("cpu=1,cpu=2", &["cpu=2"])]
    #[case::space_around_entries(" cpu=1 , memory=2Gi ", &["cpu=1", "memory=2Gi"])]
    #[case::bytes_without_a_unit("memory=1048576,ephemeral-storage=0", &["ephemeral-storage=0", "memory=1048576"])]
    #[case::huge_pages("hugepages-1Gi=2Gi,hugepages-2Mi=4194304", &["hugepages-1Gi=2Gi", "hugepages-2Mi=4194304"])]
    #[case::empty_entries(",cpu=1,,", &["cpu=1"])]
    #[case::nothing("", &[])]
    fn lists_are_read(#[case] text: &str, #[case] expected: &[&str]) {
        let (list, problems) = parse("key", text, |_, _| Ok(()));
        assert_eq!(shown(&list), expected);
        assert_eq!(problems, []);
        assert_eq!(parse_all(text).map(|list| shown(&list)), Ok(expected.iter().map(ToString::to_string).collect()));
    }

    #[rstest]
    #[case::no_equals_sign("cpu", "written name=quantity")]
    #[case::no_name("=1", "1 to 63 letters")]
    #[case::a_bad_domain("Example.com/a=1", "lower-case DNS domain")]
    #[case::no_quantity("memory=lots", "must be a Kubernetes quantity")]
    #[case::an_empty_quantity("memory=", "must be a Kubernetes quantity")]
    #[case::space_within("memory=1 Gi", "with no space")]
    #[case::negative("memory=-1Gi", "must not be negative")]
    #[case::mebibytes_without_a_unit("memory=800", "without a unit")]
    #[case::disk_without_a_unit("ephemeral-storage=10", "without a unit")]
    #[case::a_number_of_pages("hugepages-2Mi=1024", "multiple of 2Mi")]
    fn a_bad_entry_is_dropped_alone_in_an_annotation_and_an_error_in_a_flag(#[case] entry: &str, #[case] rule: &str) {
        let text = format!("first=1,{entry},last=2");
        let (list, problems) = parse("example.com/list", &text, |_, _| Ok(()));
        assert_eq!(shown(&list), ["first=1", "last=2"]);
        assert_names(&problems, ProblemKind::Capacity, &["example.com/list", &format!("{entry:?}"), rule, "ignored"]);
        let error = parse_all(&text).unwrap_err();
        assert!(error.contains(rule) && error.contains(&format!("{entry:?}")), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = parse("key", &text, |_, _| Ok(()));
            let _ = parse_all(&text);
        }
    }
}
