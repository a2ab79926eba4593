//! The five tables of nycflights13. They have no primary keys, so a row that is applied twice is present twice.

use rusqlite::types::Value;

use crate::Result;
use crate::csv::Records;

/// The values of a row, in the order of the table's columns.
pub type Row = Vec<Value>;

/// A table, and the CSV file that it comes from.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    columns: &'static [(&'static str, Type)],
}

#[derive(Clone, Copy, Debug)]
enum Type {
    Integer,
    Real,
    Text,
}

use Type::{Integer, Real, Text};

pub const FLIGHTS: Table = Table {
    name: "flights",
    columns: &[
        ("year", Integer),
        ("month", Integer),
        ("day", Integer),
        ("dep_time", Integer),
        ("sched_dep_time", Integer),
        ("dep_delay", Integer),
        ("arr_time", Integer),
        ("sched_arr_time", Integer),
        ("arr_delay", Integer),
        ("carrier", Text),
        ("flight", Integer),
        ("tailnum", Text),
        ("origin", Text),
        ("dest", Text),
        ("air_time", Integer),
        ("distance", Integer),
        ("hour", Integer),
        ("minute", Integer),
        ("time_hour", Text),
    ],
};

const AIRLINES: Table = Table { name: "airlines", columns: &[("carrier", Text), ("name", Text)] };

const AIRPORTS: Table = Table {
    name: "airports",
    columns: &[
        ("faa", Text),
        ("name", Text),
        ("lat", Real),
        ("lon", Real),
        ("alt", Integer),
        ("tz", Integer),
        ("dst", Text),
        ("tzone", Text),
    ],
};

const PLANES: Table = Table {
    name: "planes",
    columns: &[
        ("tailnum", Text),
        ("year", Integer),
        ("type", Text),
        ("manufacturer", Text),
        ("model", Text),
        ("engines", Integer),
        ("seats", Integer),
        ("speed", Integer),
        ("engine", Text),
    ],
};

const WEATHER: Table = Table {
    name: "weather",
    columns: &[
        ("origin", Text),
        ("year", Integer),
        ("month", Integer),
        ("day", Integer),
        ("hour", Integer),
        ("temp", Real),
        ("dewp", Real),
        ("humid", Real),
        ("wind_dir", Integer),
        ("wind_speed", Real),
        ("wind_gust", Real),
        ("precip", Real),
        ("pressure", Real),
        ("visib", Real),
        ("time_hour", Text),
    ],
};

/// All tables, the one with the most rows last.
pub const TABLES: &[&Table] = &[&AIRLINES, &AIRPORTS, &PLANES, &WEATHER, &FLIGHTS];

impl Table {
    pub fn create(&self) -> String {
        let column = |(name, kind): &(&str, Type)| format!("{name} {}", format!("{kind:?}").to_uppercase());
        format!("CREATE TABLE {} ({})", self.name, self.list(column))
    }

    pub fn insert(&self) -> String {
        let names = self.list(|(name, _)| (*name).to_owned());
        format!("INSERT INTO {} ({names}) VALUES ({})", self.name, self.list(|_| "?".to_owned()))
    }

    pub fn select(&self) -> String {
        format!("SELECT {} FROM {}", self.list(|(name, _)| (*name).to_owned()), self.name)
    }

    /// Returns the rows of the table's CSV text, whose header must name the table's columns.
    pub fn rows<'a>(&'a self, text: &'a str) -> Result<impl Iterator<Item = Result<Row>> + 'a> {
        let mut records = Records(text);
        let head = records.next().unwrap_or_default();
        if !head.iter().eq(self.columns.iter().map(|(name, _)| name)) {
            return Err(format!("{}.csv has other columns: {}", self.name, head.join(", ")).into());
        }
        Ok(records.enumerate().map(|(index, record)| self.row(index + 2, &record)))
    }

    fn row(&self, line: usize, record: &[std::borrow::Cow<'_, str>]) -> Result<Row> {
        if record.len() != self.columns.len() {
            return Err(format!("{}.csv:{line}: {} fields", self.name, record.len()).into());
        }
        let fields = self.columns.iter().zip(record);
        fields
            .map(|((column, kind), field)| {
                kind.parse(field).ok_or_else(|| format!("{}.csv:{line}: {column} is {field:?}", self.name).into())
            })
            .collect()
    }

    fn list(&self, item: impl Fn(&(&'static str, Type)) -> String) -> String {
        self.columns.iter().map(item).collect::<Vec<_>>().join(", ")
    }
}

impl Type {
    fn parse(self, field: &str) -> Option<Value> {
        match (self, field) {
            (_, "" | "NA") => Some(Value::Null),
            (Integer, _) => field.parse().ok().map(Value::Integer),
            (Real, _) => field.parse().ok().map(Value::Real),
            (Text, _) => Some(Value::Text(field.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "faa,name,lat,lon,alt,tz,dst,tzone\n";

    fn airports(records: &str) -> Result<Vec<Row>> {
        AIRPORTS.rows(&format!("{HEAD}{records}"))?.collect()
    }

    #[test]
    fn fields_take_the_type_of_their_column() -> Result<()> {
        let rows = airports("369,,41,-80.5,1044,NA,A,America/New_York\n")?;
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = [
            text("369"),
            Value::Null,
            Value::Real(41.0),
            Value::Real(-80.5),
            Value::Integer(1044),
            Value::Null,
            text("A"),
            text("America/New_York"),
        ];
        assert_eq!(rows, [expected]);
        Ok(())
    }

    #[test]
    fn errors_name_the_line_and_the_problem() {
        let why = |result: Result<Vec<Row>>| result.err().map(|error| error.to_string());
        assert_eq!(why(airports("a,b,1,2,high,4,A,z\n")), Some("airports.csv:2: alt is \"high\"".to_owned()));
        assert_eq!(why(airports("a,b\n")), Some("airports.csv:2: 2 fields".to_owned()));
        let other = AIRLINES.rows(HEAD).map(|_| Vec::new());
        assert_eq!(why(other), Some(format!("airlines.csv has other columns: {}", HEAD.trim().replace(',', ", "))));
    }
}
