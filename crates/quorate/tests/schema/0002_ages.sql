ALTER TABLE people ADD COLUMN age INTEGER;
INSERT INTO people (name, age) VALUES ('ann', 42);
