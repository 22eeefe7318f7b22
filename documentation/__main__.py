"""Write the pages that are made out of the code."""

from documentation.configuration import PAGE, page

PAGE.write_text(page())
print(f"{PAGE} is written")
