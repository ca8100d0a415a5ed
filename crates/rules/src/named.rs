//! Enums whose values have names for programs: metric labels, JSON and queries.

/// Declares an enum with the name of each value, in `as_str`, and all of its values, in `ALL`, which can lack none.
///
/// ```
/// rules::named_enum! {
///     /// A colour.
///     #[derive(Clone, Copy, Debug, Eq, PartialEq)]
///     pub enum Colour {
///         /// The colour of the sky.
///         LightBlue = "light_blue",
///         /// The colour of grass.
///         Green = "green",
///     }
/// }
/// assert_eq!(Colour::ALL.map(Colour::as_str), ["light_blue", "green"]);
/// ```
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Name:ident {
            $($(#[$of_value:meta])* $Value:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $Name {
            $($(#[$of_value])* $Value,)+
        }

        impl $Name {
            /// All values.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$Value),+];

            /// Returns the name for programs.
            #[must_use]
            $visibility fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)+
                }
            }
        }
    };
}
