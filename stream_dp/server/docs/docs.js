// Shows the OpenAPI document of this server with Swagger UI (vendored beside this file), light or dark as the reader's.
// Rules: nothing is asked of another host, no validator either; a token that is typed in is kept until the page is
// left and no longer. Requests are tried only when asked for.

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

window.SwaggerUIBundle({
  url: "/api/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  queryConfigEnabled: false,
  validatorUrl: null,
});
