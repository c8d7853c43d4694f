//! How a record becomes a line of text.

use std::fmt::Display;
use std::io::Write;

use tidegate_state::CompactString;

/// Writes a value as text in one line.
///
/// Implemented for text, numbers, `bool` and `char`, and for tuples of them: a tuple is a row of
/// columns with tabs between. Text is written as it is: a tab or line feed in it is not escaped.
///
/// ```
/// use tidegate_connectors::WriteLine;
///
/// let mut line = Vec::new();
/// ("word", 42_u64).write_line(&mut line);
/// assert_eq!(line, b"word\t42");
/// ```
pub trait WriteLine {
    /// Appends the value to `line`, without a line feed at the end.
    fn write_line(&self, line: &mut Vec<u8>);
}

fn display(value: &impl Display, line: &mut Vec<u8>) {
    write!(line, "{value}").expect("writing to memory succeeds unless `Display` itself fails");
}

impl WriteLine for str {
    fn write_line(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(self.as_bytes());
    }
}

impl WriteLine for String {
    fn write_line(&self, line: &mut Vec<u8>) {
        self.as_str().write_line(line);
    }
}

impl WriteLine for CompactString {
    fn write_line(&self, line: &mut Vec<u8>) {
        self.as_str().write_line(line);
    }
}

impl<T: WriteLine + ?Sized> WriteLine for &T {
    fn write_line(&self, line: &mut Vec<u8>) {
        T::write_line(self, line);
    }
}

macro_rules! write_displayed {
    ($($type:ty),*) => {$(
        impl WriteLine for $type {
            fn write_line(&self, line: &mut Vec<u8>) {
                display(self, line);
            }
        }
    )*};
}

write_displayed!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64, bool, char
);

macro_rules! write_columns {
    ($(($first:ident $(, $name:ident)*)),*) => {$(
        impl<$first: WriteLine $(, $name: WriteLine)*> WriteLine for ($first, $($name,)*) {
            #[allow(non_snake_case)]
            fn write_line(&self, line: &mut Vec<u8>) {
                let ($first, $($name,)*) = self;
                $first.write_line(line);
                $(
                    line.push(b'\t');
                    $name.write_line(line);
                )*
            }
        }
    )*};
}

write_columns!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F)
);

/// Writes records of one type as lines; what a sink is given besides the place to write to.
pub trait LineFormat<T>: Send + Sync + 'static {
    /// Appends the record to `line`, without a line feed at the end.
    fn write(&self, record: &T, line: &mut Vec<u8>);
}

/// As [`WriteLine`] says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns;

impl<T: WriteLine> LineFormat<T> for Columns {
    #[inline]
    fn write(&self, record: &T, line: &mut Vec<u8>) {
        record.write_line(line);
    }
}

/// As the type's own [`Display`] does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Displayed;

impl<T: Display> LineFormat<T> for Displayed {
    #[inline]
    fn write(&self, record: &T, line: &mut Vec<u8>) {
        display(record, line);
    }
}

/// As a closure does.
#[derive(Clone, Copy, Debug)]
pub struct FormatWith<F>(pub(crate) F);

impl<T, F: Fn(&T, &mut Vec<u8>) + Send + Sync + 'static> LineFormat<T> for FormatWith<F> {
    #[inline]
    fn write(&self, record: &T, line: &mut Vec<u8>) {
        (self.0)(record, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<T>(format: &impl LineFormat<T>, record: &T) -> String {
        let mut line = Vec::new();
        format.write(record, &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn tuples_are_columns() {
        assert_eq!(
            line(&Columns, &("a b".to_owned(), -3_i32, true)),
            "a b\t-3\ttrue"
        );
        assert_eq!(line(&Columns, &(1_u8,)), "1");
        assert_eq!(line(&Columns, &((1_u8, 'x'), 2.5_f64)), "1\tx\t2.5");
    }

    #[test]
    fn display_and_closures_are_taken() {
        assert_eq!(
            line(&Displayed, &std::net::Ipv4Addr::LOCALHOST),
            "127.0.0.1"
        );
        let format = FormatWith(|record: &(u8, u8), line: &mut Vec<u8>| {
            (record.0 + record.1).write_line(line);
        });
        assert_eq!(line(&format, &(1, 2)), "3");
    }
}
