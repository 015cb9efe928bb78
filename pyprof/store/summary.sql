-- The table that the summary of a fleet has besides those of schema.sql.

-- The name of each worker's database, in the folder of the summary.
create table recording (worker integer primary key, database text);
